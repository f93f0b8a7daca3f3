"""The tables on one run, as text in cells."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from math import nan

from stallscope.analysis import ENTRIES, Analysis
from stallscope.analysis.gains.baseline import Decomposition
from stallscope.analysis.ledger.figures import RankSummary
from stallscope.analysis.ledger.goodput import Goodput
from stallscope.analysis.ledger.ledger import CAUSES, STAGES
from stallscope.arrays.stats import Mean
from stallscope.formatting.lists import counted
from stallscope.formatting.numbers import (
    NOT_MEASURED,
    amount,
    finite,
    percent,
    plus_minus,
    share,
    significant,
)
from stallscope.formatting.sums import SumColumn
from stallscope.text import events, stragglers
from stallscope.text.baselines import decomposed
from stallscope.text.cells import Cells
from stallscope.text.gains import answers, gains, saved, speedup, speedup_interval
from stallscope.text.job import (
    checkpoint_sentence,
    duration,
    goodput_column,
    goodput_parts,
    goodput_sentence,
    job_total,
)
from stallscope.text.printed_steps import printed_figures
from stallscope.text.step_figures import StepFigures
from stallscope.text.titles import TITLES, entry_title
from stallscope.text.verdicts import headline

from ..document import NOTHING, Table
from .contents import job_parts

#: Below gains that no run has shown.
EXTRAPOLATED = (
    "Extrapolated: bandwidth as if latency cost nothing; ranks by a model of the communication. Its "
    "interval goes from all bandwidth to all latency if runs of one size only are known."
)
#: By the source of the prediction, the note below gains.
GAINS_FROM = {
    "baseline": "Predicted from the baseline's steps; the other faults stay.",
    "run": "Predicted by replaying the run's own steps without the fault.",
}
_RANK_TITLES = ("Input", "Compute", "Other", "Waits", "Allreduce")
_RANK_STAGES = ("input", "compute", "other", "wait", "allreduce")
# People do not read more; the dashboard and JSON have all of them.
_MOST_EVENTS = 50
_MOST_EPOCHS = 10
_MOST_RANKS = 8
_MOST_STRAGGLERS = 5


def cause_table(analysis: Analysis) -> Table:
    """Return the step by cause, and how long ranks wait for the slowest in each stage."""
    unit = step_unit(analysis)
    columns = ["Cause", f"{unit} per step", "Share", f"Others wait, {unit}"]
    if analysis.baseline is not None:
        columns += [f"Baseline, {unit}", f"Difference, {unit}"]
    rows = _sum_rows(analysis, CAUSES, by_cause=True)
    waits = _waits(analysis)
    return Table(
        "Step time by cause",
        tuple(columns),
        tuple((*row[:3], wait, *row[3:]) for row, wait in zip(rows, waits, strict=True)),
        emphasised=frozenset({len(CAUSES)}),
        note="Stages of the rank that is last in each step. Others wait: how much longer its stage is "
        "than the typical rank's. ± is the 95% interval of the mean.",
    )


def ledger_table(analysis: Analysis) -> Table:
    """Return the step by entry of the ledger, next to the baselines' entries."""
    unit = step_unit(analysis)
    columns = ["Entry", f"{unit} per step", "Share"]
    if analysis.baseline is not None:
        columns += [f"Baseline, {unit}", f"Difference, {unit}"]
    rows = _sum_rows(analysis, ENTRIES, by_cause=False)
    if analysis.single is not None:
        columns.append(f"On one rank, {unit}")
        rows = [(*row, one) for row, one in zip(rows, _on_one_rank(analysis), strict=True)]
    return Table(
        "Ledger, with imbalance",
        tuple(columns),
        tuple(rows),
        emphasised=frozenset({len(ENTRIES)}),
        note="The typical rank's stages, and how long it waits for the slowest. They add up to the "
        "step. ± is the 95% interval of the mean over steady steps.",
    )


def step_unit(analysis: Analysis) -> str:
    """Return the unit in which the step is printed."""
    return Cells.for_all([_mean(analysis)]).unit


def _sum_rows(analysis: Analysis, names: Sequence[str], *, by_cause: bool) -> list[tuple[str, ...]]:
    """Return the rows of a ledger and its total: title, time, share, baseline's time, difference."""
    figures, step = StepFigures.of(analysis), analysis.step
    titles = [entry_title(name, analysis) for name in names]
    if figures is None or step is None:
        none = (NOTHING,) * (1 + 2 * (analysis.baseline is not None))
        rows = [(title, NOT_MEASURED, *none) for title in titles]
        return [*rows, _unmeasured_total(analysis)]
    own = figures.causes if by_cause else figures.entries
    entries = [(analysis.cause if by_cause else analysis.entry)(name) for name in names]
    rows = [
        (title, NOT_MEASURED, NOTHING)
        if entry is None
        else (title, own.text(part, entry.ci95_ms), percent(entry.share))
        for title, part, entry in zip(titles, own.parts, entries, strict=True)
    ]
    rows.append(("Step", own.text(own.total, step.ci95), "100%"))
    if analysis.baseline is None:
        return rows
    base = figures.in_same_digits(analysis.baseline)
    if base is None:
        total = _unmeasured_total(analysis)
        return [*((*row, NOT_MEASURED, NOT_MEASURED) for row in rows[:-1]), total]
    usual = base.causes if by_cause else base.entries
    more = own.less(usual)
    differences = [
        NOT_MEASURED if entry is None else more.signed(part, entry.excess_ci95_ms)
        for part, entry in zip(more.parts, entries, strict=True)
    ]
    differences.append(more.signed(more.total, _loss(analysis).ci95))
    return [
        (*row, usual.text(its), difference)
        for row, its, difference in zip(rows, (*usual.parts, usual.total), differences, strict=True)
    ]


def _unmeasured_total(analysis: Analysis) -> tuple[str, ...]:
    """Return the step's row if its parts, or those of the baseline's step, were not measured."""
    step, loss = analysis.step, _loss(analysis)
    if step is None:
        return ("Step", NOT_MEASURED, *[NOTHING] * (1 + 2 * (analysis.baseline is not None)))
    own = SumColumn.of([step.mean], step.mean, step.ci95)
    row = ["Step", own.text(own.total, step.ci95), "100%"]
    base = None if analysis.baseline is None else _mean(analysis.baseline)
    if base is not None:
        usual = own.in_same_digits([base])
        more = own.less(usual)
        row += [usual.text(usual.total), more.signed(more.total, loss.ci95)]
    elif analysis.baseline is not None:
        row += [NOT_MEASURED, NOT_MEASURED]
    return tuple(row)


def _on_one_rank(analysis: Analysis) -> list[str]:
    """Return the ledger of the run on one rank, and its step."""
    figures = StepFigures.of(analysis)
    single = None if figures is None else figures.in_same_digits(analysis.single)
    if single is None:
        cells = Cells.for_all([_mean(analysis)])
        step = None if analysis.single is None else _mean(analysis.single)
        return [*[NOT_MEASURED] * len(ENTRIES), cells.plain(step)]
    own = single.entries
    return [own.text(ms) for ms in (*own.parts, own.total)]


def _waits(analysis: Analysis) -> list[str]:
    """Return how long the others wait for each cause, and the imbalance, which is the sum."""
    figures = StepFigures.of(analysis)
    if figures is None:
        return [NOTHING] * (len(CAUSES) + 1)
    waits = figures.waits
    if analysis.run.one_log_of_many:
        return [*[NOT_MEASURED] * len(STAGES), NOTHING, NOT_MEASURED]
    return [*map(waits.text, waits.parts), NOTHING, waits.text(waits.total)]


def _loss(analysis: Analysis) -> Mean:
    """Return how much longer the step is than the baseline's."""
    own = analysis.step
    other = None if analysis.baseline is None else analysis.baseline.step
    if own is None or other is None:
        return Mean(nan, None)
    return Mean(own.mean, own.ci95).minus(Mean(other.mean, other.ci95))


def _mean(analysis: Analysis) -> float | None:
    return None if analysis.step is None else analysis.step.mean


def stragglers_table(analysis: Analysis) -> Table | None:
    """Return the table of stragglers; None if there are none."""
    if not analysis.stragglers:
        return None
    found = analysis.stragglers
    return Table.of(
        "Stragglers",
        {
            "Who": map(stragglers.who, found),
            "When": map(stragglers.pattern, found),
            "Stage": [TITLES[one.stage] for one in found],
            "By how much": map(stragglers.excess, found),
            "Share of steps": [percent(one.late_share) for one in found],
            "Costs per step": map(stragglers.cost, found),
        },
        words=frozenset({0, 1, 2}),
        note=stragglers.NOTE,
        most={"terminal": _MOST_STRAGGLERS},
    )


def baselines_table(analysis: Analysis) -> Table | None:
    """Return what is lost between one rank, all ranks on synthetic data, and this run.

    None without stages of both the run and its baseline.
    """
    parts, both = analysis.decomposition, StepFigures.of_both(analysis, analysis.baseline)
    if parts is None or both is None or analysis.step is None:
        return None
    figures, whole = both[0], analysis.step.mean
    runs = (analysis, analysis.baseline, analysis.single)
    steps = [_step_of(run, figures, whole) for run in runs if run is not None]
    losses = _losses(parts, *both)
    scale = figures.scale_loss(analysis)
    if parts.scale is not None and scale is not None:
        losses.append(("Lost to scale", parts.scale, scale))
    differences = [
        (title, figures.causes.signed(value, mean.ci95), _share_of(mean.value, whole))
        for title, mean, value in losses
    ]
    return Table(
        "Against the baselines",
        ("What", f"{figures.unit} per step", "Of this run's step"),
        (*steps, *differences),
        emphasised=frozenset(range(len(steps))),
        note=f"{decomposed(analysis)} Differences are by cause: those of the rank that is last in "
        "each step. They add up to what is lost to real data.",
    )


def _losses(
    parts: Decomposition, own: StepFigures, base: StepFigures
) -> list[tuple[str, Mean, float]]:
    """Return what is lost to real data with its four parts, which add up as printed."""
    more = own.causes.less(base.causes)
    communication = base.waits.total + base.part("allreduce")
    return [
        ("Lost to real data", parts.loss, more.total),
        ("of it: input stall", parts.input_stall, more.parts[0]),
        ("of it: compute", parts.compute, more.parts[1]),
        ("of it: work between steps", parts.other, more.parts[2]),
        ("of it: exposed allreduce", parts.allreduce, more.parts[3]),
        ("Waiting and allreduce on synthetic data", parts.communication, communication),
    ]


def _step_of(analysis: Analysis, figures: StepFigures, whole: float) -> tuple[str, str, str]:
    data = "synthetic" if analysis.run.synthetic else "real"
    title = f"Step on {data} data, {counted(analysis.run.size, 'rank')}"
    step = analysis.step
    if step is None:
        return (title, NOT_MEASURED, NOTHING)
    return (title, figures.text(figures.rounded(step.mean), step.ci95), _share_of(step.mean, whole))


def step_table(analysis: Analysis) -> Table | None:
    """Return the distribution of step times; None without steady steps."""
    if analysis.step is None:
        return None
    step = analysis.step
    rows = (
        ("Mean", amount(step.mean, "ms", step.ci95)),
        ("Median", amount(step.p50, "ms")),
        ("95th percentile", amount(step.p95, "ms")),
        ("99th percentile", amount(step.p99, "ms")),
    )
    return Table("Step times", ("Of steady steps", "Time"), rows)


def epochs_table(analysis: Analysis) -> Table | None:
    """Return how long each epoch took if logs know epochs but no steps; None otherwise."""
    known = analysis.epoch_times
    if known is None or not known.epochs:
        return None
    epochs = known.epochs
    columns: dict[str, Iterable[str]] = {
        "Fit": [str(one.fit) for one in epochs],
        "Epoch": [str(one.epoch) for one in epochs],
        "Rank": [str(one.rank) for one in epochs],
        "Took": map(duration, epochs),
    }
    for title in ("Fit", "Rank"):
        if len(set(columns[title])) == 1:
            del columns[title]
    return Table.of(
        "Epochs",
        columns,
        words=frozenset(),
        most={"terminal": _MOST_EPOCHS},
        note=f"From {known.known_from}: {known.precision}. Epochs are counted from 0 and "
        "include their validation. ± is the rounding of a time.",
    )


def printed_steps_table(analysis: Analysis) -> Table | None:
    """Return what lines about steps tell; None without such lines."""
    figures = printed_figures(analysis.printed)
    if not figures:
        return None
    names, texts = zip(*figures, strict=True)
    columns = {"Figure": names, "Value": texts}
    return Table.of("Steps by printed lines", columns, words=frozenset({0, 1}))


def printed_ranks_table(analysis: Analysis) -> Table | None:
    """Return what each rank printed of its steps; None unless several ranks did."""
    printed = analysis.printed
    if printed is None or len(printed.ranks) < 2:
        return None
    waits = [one.mean_input_ms for one in printed.ranks]
    columns: dict[str, Iterable[str]] = {
        "Rank": [str(one.rank) for one in printed.ranks],
        "Lines": [f"{len(one):,}" for one in printed.ranks],
        "Steps": [f"{int(one.steps.sum()):,}" for one in printed.ranks],
        "Mean step, ms": [significant(one.mean_ms) for one in printed.ranks],
        "Waiting for data, ms": [
            NOT_MEASURED if one is None else significant(one) for one in waits
        ],
    }
    if all(one is None for one in waits):
        del columns["Waiting for data, ms"]
    return Table.of(
        "Ranks that printed", columns, words=frozenset(), most={"terminal": _MOST_RANKS}
    )


def gains_table(analysis: Analysis, most: int | None = None) -> Table | None:
    """Return what each fix gains, and the answers to questions; None if the logs cannot tell.

    Args:
        most: how many fixes; all without it.
    """
    found = [*gains(analysis)[:most], *answers(analysis)]
    if not found:
        return None
    source = GAINS_FROM[analysis.predicted_from]
    if analysis.printed is not None:
        source = "The wait for data that lines have; other ranks may be what a step waits for then."
    note = f"{source} Gains do not add up."
    if is_extrapolated(analysis):
        note = f"{note} {EXTRAPOLATED}"
    fixes = [gain.what_if for gain in found]
    return Table.of(
        "Potential gains",
        {
            "Fix": [gain.title for gain in found],
            "Saved per step": [saved(fix) or NOTHING for fix in fixes],
            "Speed-up": map(speedup, fixes),
            "95% interval": map(speedup_interval, fixes),
        },
        note=note,
        without={"terminal": (1,)},
    )


def is_extrapolated(analysis: Analysis) -> bool:
    """Return whether an answer is about something that no run has shown."""
    return any(answer.what_if.extrapolated for answer in answers(analysis))


def events_table(analysis: Analysis) -> Table | None:
    """Return the events that other logs of the job report; None without any."""
    run = analysis.run
    listed = events.worst(run.events, _MOST_EVENTS)
    if not listed:
        return None
    note = "Times count from the start of the first log, by the wall clocks of the logs' writers."
    more = len(run.events) - len(listed)
    if more:
        note += f" {more:,} more of {len(run.events):,} are left out, the harmless ones first."
    columns = {
        "When": [events.when(one, run) for one in listed],
        "What happened": map(events.what, listed),
        "Of": [events.who(one) or NOTHING for one in listed],
        "Log": [one.where for one in listed],
    }
    return Table.of(events.TITLE, columns, words=frozenset(range(len(columns))), note=note)


def ranks_table(
    analysis: Analysis, title: str = "Ranks", ranks: Sequence[RankSummary] | None = None
) -> Table:
    """Return the means per step of these ranks; of every rank without them."""
    ranks = analysis.ranks if ranks is None else ranks
    named = set(analysis.bottleneck.ranks)
    stages = zip(*rank_cells(analysis, ranks), strict=True) if ranks else [()] * len(_RANK_STAGES)
    unit = step_unit(analysis)
    return Table.of(
        title,
        {
            "Rank": [str(rank.rank) for rank in ranks],
            "Host": [rank.host for rank in ranks],
            **{f"{name}, {unit}": own for name, own in zip(_RANK_TITLES, stages, strict=True)},
            "Last to be ready": [share(rank.critical_share) for rank in ranks],
            "Clock offset, ms": map(clock, ranks),
        },
        words=frozenset({1}),
        emphasised=frozenset(row for row, rank in enumerate(ranks) if rank.rank in named),
        note="Means per steady step. Stragglers are highlighted.",
        without={"terminal": (4, 6, 8)},
        most={"terminal": _MOST_RANKS},
    )


def rank_cells(analysis: Analysis, ranks: Sequence[RankSummary]) -> list[list[str]]:
    """Return each rank's input, compute, other, waits and allreduce in the step's unit."""
    figures = StepFigures.of(analysis)
    if figures is None:
        return [[NOT_MEASURED] * len(_RANK_STAGES) for _ in ranks]
    return [
        [figures.text(printed[name]) if name in printed else NOT_MEASURED for name in _RANK_STAGES]
        for printed in map(figures.of_rank, ranks)
    ]


def clock(rank: RankSummary) -> str:
    """Return how far a rank's clock is ahead of the first host's in ms, with its uncertainty."""
    uncertainty = finite(rank.clock_uncertainty_ms)
    if uncertainty is None:
        return "unknown"
    offset = rank.clock_offset_ms
    if not uncertainty:
        return significant(offset)
    return plus_minus(offset, (offset - uncertainty, offset + uncertainty))


def generations_table(analysis: Analysis) -> Table | None:
    """Return the generations of a run whose ranks changed, one after the other; None for one."""
    found = analysis.generations
    if len(found) < 2:
        return None
    return Table.of(
        "Generations: the ranks between two changes",
        {
            "Generation": [str(one.number) for one in found],
            "Began": [_time_of_day(one.started_at) for one in found],
            "Ranks": [str(one.size) for one in found],
            "Hosts": [", ".join(one.host_names) for one in found],
            "Steps": [f"{one.steps:,}" for one in found],
            "Trained again": [_count_or_unknown(one.repeated_steps) for one in found],
            "Step time": [
                NOT_MEASURED if one.step is None else amount(one.step.mean, "ms", one.step.ci95)
                for one in found
            ],
            "Verdict": [headline(one.bottleneck, one.stragglers) for one in found],
            "Ended": [one.ended_by or NOTHING for one in found],
        },
        words=frozenset({1, 3, 7, 8}),
        note="Times are in UTC. The JSON has the ledger, stragglers and findings of each one.",
    )


def _count_or_unknown(count: int | None) -> str:
    return events.NOT_KNOWN if count is None else f"{count:,}"


def _time_of_day(moment: datetime | None) -> str:
    return NOTHING if moment is None else f"{moment:%H:%M:%S}"


def job_table(analysis: Analysis) -> Table:
    """Return what went into compute, and what each cause took; without stages, the whole job."""
    goodput = analysis.goodput
    if goodput is None:
        rows = [(TITLES[name], NOT_MEASURED, NOTHING) for name, _ in job_parts(analysis)]
    else:
        parts, column = goodput_parts(goodput), goodput_column(analysis)
        rows = [
            (TITLES[name], column.amount(printed), _share_of(value, goodput.total_s))
            for (name, value), printed in zip(parts, column.parts, strict=True)
        ]
    rows.append(("Job", job_total(analysis), "100%"))
    return Table(
        "Where the job's time went",
        ("Part", "Time", "Share"),
        tuple(rows),
        emphasised=frozenset({len(rows) - 1}),
        note=" ".join(filter(None, (_goodput_note(goodput), checkpoint_sentence(analysis)))),
    )


def _goodput_note(goodput: Goodput | None) -> str:
    return "" if goodput is None else goodput_sentence(goodput)


def _share_of(value: float | None, total: float) -> str:
    return NOTHING if value is None or not total else percent(value / total)

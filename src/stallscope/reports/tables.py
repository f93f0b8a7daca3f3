"""The tables of reports, as text in cells; HTML and Markdown draw the same ones."""

from __future__ import annotations

from dataclasses import dataclass
from math import nan

from stallscope.analysis import ENTRIES, Analysis
from stallscope.analysis.ledger import STAGES
from stallscope.analysis.result import CAUSES, RankSummary
from stallscope.analysis.stats import Mean
from stallscope.pictures.charts import TITLES, entry_title
from stallscope.wording import events, stragglers
from stallscope.wording.baselines import decomposed
from stallscope.wording.cells import Cells
from stallscope.wording.epochs import duration, job_total
from stallscope.wording.fixes import saved, speedup, speedup_interval
from stallscope.wording.gains import answers, gains
from stallscope.wording.numbers import (
    NOT_MEASURED,
    amount,
    finite,
    percent,
    plus_minus,
    share,
    significant,
)
from stallscope.wording.verdicts import counted

from .contents import job_parts

#: Stands in a cell for which there is nothing to say.
NOTHING = "–"
#: What to know of gains that no run has shown.
EXTRAPOLATED = (
    "Extrapolated: bandwidth as if latency cost nothing; ranks by a model of the communication, whose "
    "interval goes from all bandwidth to all latency where runs of one size only are known."
)
#: What gains are predicted from.
GAINS_FROM = {
    "baseline": "Predicted from the baseline's steps, in which the other faults stay.",
    "run": "The run's own steps, replayed without the fault.",
}
_RANK_STAGES = ("input", "compute", "other", "wait", "allreduce")
# More of them nobody reads one by one; the dashboard and JSON have them.
_MOST_EVENTS = 50


@dataclass(frozen=True)
class Table:
    """Rows of text below columns; the first column names its row."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    #: Columns of words; all others are numbers.
    words: frozenset[int] = frozenset({0})
    emphasised: frozenset[int] = frozenset()
    note: str = ""


def cause_table(analysis: Analysis) -> Table:
    """The step by cause, and how much of each stage is waiting for slow ranks."""
    whole = None if analysis.step is None else analysis.step.mean
    cells = Cells.for_all([whole])
    columns = ["Cause", f"{cells.unit} per step", "Share", f"Others wait, {cells.unit}"]
    if analysis.baseline is not None:
        columns += [f"Baseline, {cells.unit}", f"Difference, {cells.unit}"]
    rows = [_cause_row(name, analysis, cells) for name in CAUSES]
    cause, mean, share_of_step, *others = _total_row(analysis, cells)
    waiting = analysis.entry("imbalance")
    waits = NOTHING if waiting is None else cells.plain(waiting.ms)
    rows.append((cause, mean, share_of_step, waits, *others[: len(columns) - 4]))
    return Table(
        "Step time by cause",
        tuple(columns),
        tuple(rows),
        emphasised=frozenset({len(rows) - 1}),
        note="Stages of the rank that is last in each step. Others wait: by how much its stage is "
        "longer than the typical rank's. ± is the 95% interval of the mean.",
    )


def _cause_row(name: str, analysis: Analysis, cells: Cells) -> tuple[str, ...]:
    entry = analysis.cause(name)
    if entry is None:
        return (entry_title(name, analysis), NOT_MEASURED, NOTHING, NOTHING) + (
            NOTHING,
            NOTHING,
        ) * (analysis.baseline is not None)
    waits = cells.plain(entry.waiting_ms) if name in STAGES else NOTHING
    title, mean = entry_title(name, analysis), cells.mean(entry.ms, entry.ci95_ms)
    row = [title, mean, percent(entry.share), waits]
    if analysis.baseline is not None:
        row += [
            cells.plain(entry.baseline_ms),
            cells.excess(entry.excess_ms, entry.excess_ci95_ms),
        ]
    return tuple(row)


def ledger_table(analysis: Analysis) -> Table:
    """Where a step's time goes; with baselines, beside theirs."""
    whole = None if analysis.step is None else analysis.step.mean
    cells = Cells.for_all([whole])
    columns = ["Entry", f"{cells.unit} per step", "Share"]
    if analysis.baseline is not None:
        columns += [f"Baseline, {cells.unit}", f"Excess, {cells.unit}"]
    if analysis.single is not None:
        columns.append(f"On one rank, {cells.unit}")
    rows = [_ledger_row(name, analysis, cells) for name in ENTRIES]
    rows.append(_total_row(analysis, cells))
    return Table(
        "Ledger, with imbalance",
        tuple(columns),
        tuple(rows),
        emphasised=frozenset({len(rows) - 1}),
        note="± is the 95% interval of the mean over steady steps.",
    )


def _ledger_row(name: str, analysis: Analysis, cells: Cells) -> tuple[str, ...]:
    entry = analysis.entry(name)
    if entry is None:
        others = 2 * (analysis.baseline is not None) + (analysis.single is not None)
        return (TITLES[name], NOT_MEASURED, NOTHING, *[NOTHING] * others)
    title, mean = entry_title(name, analysis), cells.mean(entry.ms, entry.ci95_ms)
    row = [title, mean, percent(entry.share)]
    if analysis.baseline is not None:
        row += [
            cells.plain(entry.baseline_ms),
            cells.excess(entry.excess_ms, entry.excess_ci95_ms),
        ]
    if analysis.single is not None:
        row.append(cells.plain(entry.single_ms))
    return tuple(row)


def _total_row(analysis: Analysis, cells: Cells) -> tuple[str, ...]:
    step = analysis.step
    row = ["Step", NOT_MEASURED, NOTHING]
    if step is not None:
        row = ["Step", cells.mean(step.mean, step.ci95), "100%"]
    if analysis.baseline is not None:
        loss = _loss(analysis)
        row += [cells.plain(_mean(analysis.baseline)), cells.excess(loss.value, loss.ci95)]
    if analysis.single is not None:
        row.append(cells.plain(_mean(analysis.single)))
    return tuple(row)


def _loss(analysis: Analysis) -> Mean:
    """By how much the step is longer than the baseline's."""
    own = analysis.step
    other = None if analysis.baseline is None else analysis.baseline.step
    if own is None or other is None:
        return Mean(nan, None)
    return Mean(own.mean, own.ci95).minus(Mean(other.mean, other.ci95))


def _mean(analysis: Analysis) -> float | None:
    return None if analysis.step is None else analysis.step.mean


def stragglers_table(analysis: Analysis) -> Table | None:
    """Who makes the others wait. None where nobody does."""
    if not analysis.stragglers:
        return None
    rows = tuple(
        (
            stragglers.who(one),
            stragglers.pattern(one),
            TITLES[one.stage],
            stragglers.excess(one),
            percent(one.late_share),
            stragglers.cost(one),
        )
        for one in analysis.stragglers
    )
    return Table(
        "Who makes the others wait",
        ("Who", "When", "Stage", "By how much", "Share of steps", "Costs per step"),
        rows,
        words=frozenset({0, 1, 2}),
        note=stragglers.NOTE,
    )


def baselines_table(analysis: Analysis) -> Table | None:
    """What is lost between one rank, all ranks on synthetic data, and this run. None without both."""
    parts, base = analysis.decomposition, analysis.baseline
    if parts is None or base is None or analysis.step is None:
        return None
    whole = analysis.step.mean
    cells = Cells.for_all([whole])
    rows = [_step_of(analysis, cells, whole), _step_of(base, cells, whole)]
    if analysis.single is not None:
        rows.append(_step_of(analysis.single, cells, whole))
    steps = len(rows)
    losses = [
        ("Lost to real data", parts.loss),
        ("of it: input stall", parts.input_stall),
        ("of it: compute", parts.compute),
        ("of it: work between steps", parts.other),
        ("of it: exposed allreduce", parts.allreduce),
        ("Waiting and allreduce on synthetic data", parts.communication),
    ]
    if parts.scale is not None:
        losses.append(("Lost to scale", parts.scale))
    rows += [
        (title, cells.excess(mean.value, mean.ci95), _share_of(mean.value, whole))
        for title, mean in losses
    ]
    return Table(
        "Against the baselines",
        ("What", f"{cells.unit} per step", "Of this run's step"),
        tuple(rows),
        emphasised=frozenset(range(steps)),
        note=f"{decomposed(analysis)} Differences are by cause: those of the rank that is last in "
        "each step. They add up to what is lost to real data.",
    )


def _step_of(analysis: Analysis, cells: Cells, whole: float) -> tuple[str, str, str]:
    data = "synthetic" if analysis.run.synthetic else "real"
    title = f"Step on {data} data, {counted(analysis.run.size, 'rank')}"
    step = analysis.step
    if step is None:
        return (title, NOT_MEASURED, NOTHING)
    return (title, cells.mean(step.mean, step.ci95), _share_of(step.mean, whole))


def step_table(analysis: Analysis) -> Table | None:
    """How step times are spread. None without steady steps."""
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
    """How long each epoch took, where logs know that and no steps. None otherwise."""
    known = analysis.epoch_times
    if known is None or not known.epochs:
        return None
    ranks, fits = ({getattr(one, name) for one in known.epochs} for name in ("rank", "fit"))
    rows = []
    for one in known.epochs:
        fit = (str(one.fit),) if len(fits) > 1 else ()
        rank = (str(one.rank),) if len(ranks) > 1 else ()
        rows.append((*fit, str(one.epoch), *rank, duration(one)))
    columns = [*(["Fit"] if len(fits) > 1 else []), "Epoch"]
    columns += [*(["Rank"] if len(ranks) > 1 else []), "Took"]
    return Table(
        "Epochs",
        tuple(columns),
        tuple(rows),
        words=frozenset(),
        note=f"From {known.known_from}: {known.precision}. Epochs are counted from 0, and hold "
        "their validation. ± is what a time was rounded by.",
    )


def gains_table(analysis: Analysis) -> Table | None:
    """What each fix gains, and what was asked. None where the logs cannot tell."""
    asked = answers(analysis)
    found = [*gains(analysis), *asked]
    if not found:
        return None
    rows = tuple(
        (
            gain.title,
            saved(gain.what_if) or NOTHING,
            speedup(gain.what_if),
            speedup_interval(gain.what_if),
        )
        for gain in found
    )
    note = f"{GAINS_FROM[analysis.predicted_from]} Gains do not add up."
    if any(gain.what_if.extrapolated for gain in asked):
        note = f"{note} {EXTRAPOLATED}"
    return Table(
        "Potential gains",
        ("Fix", "Saved per step", "Speed-up", "95% interval"),
        rows,
        note=note,
    )


def events_table(analysis: Analysis) -> Table | None:
    """What logs beside the run's own tell. None where they tell nothing."""
    run = analysis.run
    listed = events.worst(run.events, _MOST_EVENTS)
    if not listed:
        return None
    rows = tuple(
        (events.when(one, run), events.what(one), events.who(one) or NOTHING, one.where)
        for one in listed
    )
    note = "Times count from the first log's begin, by the wall clocks of those who wrote the logs."
    more = len(run.events) - len(listed)
    if more:
        note += (
            f" {more:,} more of {len(run.events):,} are left out, those that are no trouble first."
        )
    columns = ("When", "What happened", "Of", "Log")
    return Table(events.TITLE, columns, rows, words=frozenset(range(len(columns))), note=note)


def ranks_table(analysis: Analysis) -> Table:
    """Every rank's own means per step."""
    cells = Cells.for_all(
        getattr(rank, f"{name}_ms") for rank in analysis.ranks for name in _RANK_STAGES
    )
    titles = ("Input", "Compute", "Other", "Waits", "Allreduce")
    named = set(analysis.bottleneck.ranks)
    return Table(
        "Ranks",
        (
            "Rank",
            "Host",
            *(f"{title}, {cells.unit}" for title in titles),
            "Last to be ready",
            "Clock offset, ms",
        ),
        tuple(_rank_row(rank, cells) for rank in analysis.ranks),
        words=frozenset({1}),
        emphasised=frozenset(row for row, rank in enumerate(analysis.ranks) if rank.rank in named),
        note="Means per steady step. Named ranks stand out.",
    )


def _rank_row(rank: RankSummary, cells: Cells) -> tuple[str, ...]:
    stages = [cells.plain(getattr(rank, f"{name}_ms")) for name in _RANK_STAGES]
    return (str(rank.rank), rank.host, *stages, share(rank.critical_share), clock(rank))


def clock(rank: RankSummary) -> str:
    """How far a rank's clock is ahead of the first host's, and how well that is known; ms."""
    uncertainty = finite(rank.clock_uncertainty_ms)
    if uncertainty is None:
        return "unknown"
    offset = rank.clock_offset_ms
    if not uncertainty:
        return significant(offset)
    return plus_minus(offset, (offset - uncertainty, offset + uncertainty))


def job_table(analysis: Analysis) -> Table:
    """Where the whole job's time went."""
    total = analysis.job.total
    rows = [
        (TITLES[name], amount(value, "s"), _share_of(value, total))
        for name, value in job_parts(analysis)
    ]
    rows.append(("Job", job_total(analysis), "100%"))
    return Table(
        "Where the job's time went",
        ("Part", "Time", "Share"),
        tuple(rows),
        emphasised=frozenset({len(rows) - 1}),
    )


def _share_of(value: float | None, total: float) -> str:
    return NOTHING if value is None or not total else percent(value / total)

"""The tables of reports, as text in cells; HTML and Markdown draw the same ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import nan

from stallscope.analysis import ENTRIES, Analysis
from stallscope.analysis.ledger import STAGES
from stallscope.analysis.result import CAUSES, Decomposition, LedgerEntry, RankSummary
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
from stallscope.wording.sums import SumColumn
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
    unit = step_unit(analysis)
    columns = ["Cause", f"{unit} per step", "Share", f"Others wait, {unit}"]
    if analysis.baseline is not None:
        columns += [f"Baseline, {unit}", f"Difference, {unit}"]
    entries = [analysis.cause(name) for name in CAUSES]
    rows = _sum_rows(analysis, CAUSES, entries, _base(analysis, "cause", CAUSES))
    waits = _waits(analysis)
    return Table(
        "Step time by cause",
        tuple(columns),
        tuple((*row[:3], wait, *row[3:]) for row, wait in zip(rows, waits, strict=True)),
        emphasised=frozenset({len(CAUSES)}),
        note="Stages of the rank that is last in each step. Others wait: by how much its stage is "
        "longer than the typical rank's. ± is the 95% interval of the mean.",
    )


def ledger_table(analysis: Analysis) -> Table:
    """Where a step's time goes; with baselines, beside theirs."""
    unit = step_unit(analysis)
    columns = ["Entry", f"{unit} per step", "Share"]
    if analysis.baseline is not None:
        columns += [f"Baseline, {unit}", f"Difference, {unit}"]
    entries = [analysis.entry(name) for name in ENTRIES]
    rows = _sum_rows(analysis, ENTRIES, entries, _base(analysis, "entry", ENTRIES))
    if analysis.single is not None:
        columns.append(f"On one rank, {unit}")
        cells = Cells.for_all([_mean(analysis)])
        ones = [None if entry is None else entry.single_ms for entry in entries]
        single = [cells.plain(ms) for ms in (*ones, _mean(analysis.single))]
        rows = [(*row, one) for row, one in zip(rows, single, strict=True)]
    return Table(
        "Ledger, with imbalance",
        tuple(columns),
        tuple(rows),
        emphasised=frozenset({len(ENTRIES)}),
        note="± is the 95% interval of the mean over steady steps.",
    )


def step_unit(analysis: Analysis) -> str:
    """The unit in which the step reads well."""
    return Cells.for_all([_mean(analysis)]).unit


def step_column(analysis: Analysis, entries: Sequence[LedgerEntry | None]) -> SumColumn | None:
    """The parts of a step as printed; None where they were not measured."""
    step = analysis.step
    known = [entry.ms for entry in entries if entry is not None]
    if step is None or len(known) < len(entries):
        return None
    return SumColumn.of(known, step.mean, step.ci95)


def _sum_rows(
    analysis: Analysis,
    names: Sequence[str],
    entries: Sequence[LedgerEntry | None],
    base: Sequence[float] | None,
) -> list[tuple[str, ...]]:
    """Rows of a ledger and of its total: title, milliseconds, share, baseline's, difference."""
    own, step = step_column(analysis, entries), analysis.step
    titles = [entry_title(name, analysis) for name in names]
    if own is None or step is None:
        none = (NOTHING,) * (1 + 2 * (analysis.baseline is not None))
        rows = [(title, NOT_MEASURED, *none) for title in titles]
        return [*rows, _unmeasured_total(analysis)]
    known = [entry for entry in entries if entry is not None]
    parts = [(entry.ci95_ms, entry.share, entry.excess_ci95_ms) for entry in known]
    loss = _loss(analysis)
    rows = [
        (title, own.text(part, ci95), percent(share_of_step))
        for title, part, (ci95, share_of_step, _) in zip(titles, own.parts, parts, strict=True)
    ]
    rows.append(("Step", own.text(own.total, step.ci95), "100%"))
    if analysis.baseline is None:
        return rows
    if base is None:
        total = _unmeasured_total(analysis)
        return [*((*row, NOT_MEASURED, NOT_MEASURED) for row in rows[:-1]), total]
    usual = own.beside(base)
    more = own.less(usual)
    sure = [*(excess for _, _, excess in parts), loss.ci95]
    return [
        (*row, usual.text(its), more.signed(difference, ci95))
        for row, its, difference, ci95 in zip(
            rows, (*usual.parts, usual.total), (*more.parts, more.total), sure, strict=True
        )
    ]


def _unmeasured_total(analysis: Analysis) -> tuple[str, ...]:
    """The step's row where the parts of it, or of the baseline's step, were not measured."""
    step, loss = analysis.step, _loss(analysis)
    if step is None:
        return ("Step", NOT_MEASURED, *[NOTHING] * (1 + 2 * (analysis.baseline is not None)))
    own = SumColumn.of([step.mean], step.mean, step.ci95)
    row = ["Step", own.text(own.total, step.ci95), "100%"]
    base = None if analysis.baseline is None else _mean(analysis.baseline)
    if base is not None:
        usual = own.beside([base])
        more = own.less(usual)
        row += [usual.text(usual.total), more.signed(more.total, loss.ci95)]
    elif analysis.baseline is not None:
        row += [NOT_MEASURED, NOT_MEASURED]
    return tuple(row)


def _base(analysis: Analysis, ledger: str, names: Sequence[str]) -> list[float] | None:
    """Milliseconds of the baseline's entries; None where they are not known."""
    base = analysis.baseline
    entries = [] if base is None else [getattr(base, ledger)(name) for name in names]
    if not entries or any(entry is None for entry in entries):
        return None
    return [entry.ms for entry in entries]


def _waits(analysis: Analysis) -> list[str]:
    """Of every cause what the others wait for it, and the imbalance, which is their sum."""
    entries = [entry for name in STAGES if (entry := analysis.cause(name)) is not None]
    own = step_column(analysis, [analysis.cause(name) for name in CAUSES])
    if own is None:
        return [NOTHING] * (len(CAUSES) + 1)
    waits = own.beside([entry.waiting_ms for entry in entries])
    parts = [waits.text(part) for part in waits.parts]
    return [*parts, NOTHING, waits.text(waits.total)]


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
    rows += _loss_rows(analysis, parts, cells)
    return Table(
        "Against the baselines",
        ("What", f"{cells.unit} per step", "Of this run's step"),
        tuple(rows),
        emphasised=frozenset(range(steps)),
        note=f"{decomposed(analysis)} Differences are by cause: those of the rank that is last in "
        "each step. They add up to what is lost to real data.",
    )


def _loss_rows(
    analysis: Analysis, parts: Decomposition, cells: Cells
) -> list[tuple[str, str, str]]:
    """What is lost to real data with its four parts, which add up as printed, and to scale."""
    whole = _mean(analysis) or nan
    own = step_column(analysis, [analysis.cause(name) for name in CAUSES])
    base = _base(analysis, "cause", CAUSES)
    if own is None or base is None:
        return []
    more = own.less(own.beside(base))
    losses = [
        ("Lost to real data", parts.loss, more.total),
        ("of it: input stall", parts.input_stall, more.parts[0]),
        ("of it: compute", parts.compute, more.parts[1]),
        ("of it: work between steps", parts.other, more.parts[2]),
        ("of it: exposed allreduce", parts.allreduce, more.parts[3]),
    ]
    rows = [
        (title, more.signed(value, mean.ci95), _share_of(mean.value, whole))
        for title, mean, value in losses
    ]
    rest = [("Waiting and allreduce on synthetic data", parts.communication)]
    if parts.scale is not None:
        rest.append(("Lost to scale", parts.scale))
    return rows + [
        (title, cells.excess(mean.value, mean.ci95), _share_of(mean.value, whole))
        for title, mean in rest
    ]


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

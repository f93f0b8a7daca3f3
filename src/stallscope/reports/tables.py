"""The tables of reports, as text in cells; HTML and Markdown draw the same ones."""

from __future__ import annotations

from dataclasses import dataclass

from stallscope.analysis import ENTRIES, Analysis
from stallscope.analysis.result import LedgerEntry, RankSummary
from stallscope.pictures.charts import TITLES
from stallscope.wording.gains import gains
from stallscope.wording.numbers import (
    NOT_MEASURED,
    Interval,
    Scale,
    amount,
    finite,
    percent,
    plus_minus,
    scale_for,
    signed,
    significant,
)
from stallscope.wording.verdicts import speedup, speedup_interval

from .contents import job_parts

#: Stands in a cell for which there is nothing to say.
NOTHING = "–"
_RANK_STAGES = ("input", "compute", "other", "wait", "allreduce")


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


@dataclass(frozen=True)
class _Cells:
    """Milliseconds as text in a table of one unit, no finer than its largest figure deserves."""

    scale: Scale
    largest: float | None

    def plain(self, value: float | None) -> str:
        known = finite(value)
        return NOT_MEASURED if known is None else significant(self._in(known), self._beside)

    def excess(self, value: float | None) -> str:
        known = finite(value)
        return NOT_MEASURED if known is None else signed(self._in(known), self._beside)

    def mean(self, value: float, ci95: Interval | None) -> str:
        inside = None if ci95 is None else (self._in(ci95[0]), self._in(ci95[1]))
        return plus_minus(self._in(value), inside)

    def _in(self, value: float) -> float:
        return value * self.scale.factor

    @property
    def _beside(self) -> float | None:
        return self._in(self.largest) if self.largest else None


def ledger_table(analysis: Analysis) -> Table:
    """Where a step's time goes; with a baseline, against it."""
    scale = scale_for(analysis.step.mean if analysis.step else 0.0, "ms")
    with_baseline = analysis.baseline is not None
    columns = ["Entry", f"{scale.unit} per step", "Share"]
    if with_baseline:
        columns += [f"Baseline, {scale.unit}", f"Excess, {scale.unit}"]
    whole = None if analysis.step is None else analysis.step.mean
    cells = _Cells(scale, whole)
    rows = [_ledger_row(name, analysis.entry(name), cells, with_baseline) for name in ENTRIES]
    rows.append(_total_row(analysis, cells))
    return Table(
        "Ledger of a steady step",
        tuple(columns),
        tuple(rows),
        emphasised=frozenset({len(rows) - 1}),
        note="± is the 95% interval of the mean over steady steps.",
    )


def _ledger_row(
    name: str, entry: LedgerEntry | None, cells: _Cells, with_baseline: bool
) -> tuple[str, ...]:
    if entry is None:
        return (TITLES[name], NOT_MEASURED, NOTHING, *[NOTHING] * (2 if with_baseline else 0))
    row = [TITLES[name], cells.mean(entry.ms, entry.ci95_ms), percent(entry.share)]
    if with_baseline:
        row += [cells.plain(entry.baseline_ms), cells.excess(entry.excess_ms)]
    return tuple(row)


def _total_row(analysis: Analysis, cells: _Cells) -> tuple[str, ...]:
    step, base = analysis.step, analysis.baseline
    if step is None:
        return ("Step", NOT_MEASURED, NOTHING, *([] if base is None else [NOTHING, NOTHING]))
    row = ["Step", cells.mean(step.mean, step.ci95), "100%"]
    if base is not None:
        own = None if base.step is None else base.step.mean
        excess = None if own is None else step.mean - own
        row += [cells.plain(own), cells.excess(excess)]
    return tuple(row)


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


def gains_table(analysis: Analysis) -> Table | None:
    """What each fix gains. None where the logs cannot tell."""
    found = gains(analysis)
    if not found:
        return None
    rows = tuple(
        (
            gain.title,
            amount(gain.what_if.saved_ms.value, "ms", gain.what_if.saved_ms.ci95),
            speedup(gain.what_if),
            speedup_interval(gain.what_if),
        )
        for gain in found
    )
    return Table(
        "What fixing gains",
        ("Fix", "Saved per step", "Speed-up", "95% interval"),
        rows,
        note="The run's own steps, replayed without the fault. Gains do not add up.",
    )


def ranks_table(analysis: Analysis) -> Table:
    """Every rank's own means per step."""
    values = [getattr(rank, f"{name}_ms") for rank in analysis.ranks for name in _RANK_STAGES]
    most = max((finite(value) or 0.0 for value in values), default=0.0)
    scale = scale_for(most, "ms")
    cells = _Cells(scale, most)
    titles = ("Input", "Compute", "Other", "Waits", "Allreduce")
    named = set(analysis.bottleneck.ranks)
    return Table(
        "Ranks",
        (
            "Rank",
            "Host",
            *(f"{title}, {scale.unit}" for title in titles),
            "Last to be ready",
            "Clock offset, ms",
        ),
        tuple(_rank_row(rank, cells) for rank in analysis.ranks),
        words=frozenset({1}),
        emphasised=frozenset(row for row, rank in enumerate(analysis.ranks) if rank.rank in named),
        note="Means per steady step. Named ranks stand out.",
    )


def _rank_row(rank: RankSummary, cells: _Cells) -> tuple[str, ...]:
    stages = [cells.plain(getattr(rank, f"{name}_ms")) for name in _RANK_STAGES]
    last = NOT_MEASURED if rank.critical_share is None else percent(rank.critical_share)
    return (str(rank.rank), rank.host, *stages, last, _clock(rank))


def _clock(rank: RankSummary) -> str:
    uncertainty = finite(rank.clock_uncertainty_ms)
    if uncertainty is None:
        return "unknown"
    offset = significant(rank.clock_offset_ms)
    return f"{offset} ± {significant(uncertainty)}" if uncertainty else offset


def job_table(analysis: Analysis) -> Table:
    """Where the whole job's time went."""
    total = analysis.job.total
    rows = [
        (TITLES[name], amount(value, "s"), _share_of(value, total))
        for name, value in job_parts(analysis)
    ]
    rows.append(("Job", amount(total, "s"), "100%"))
    return Table(
        "Where the job's time went",
        ("Part", "Time", "Share"),
        tuple(rows),
        emphasised=frozenset({len(rows) - 1}),
    )


def _share_of(value: float | None, total: float) -> str:
    return NOTHING if value is None or not total else percent(value / total)

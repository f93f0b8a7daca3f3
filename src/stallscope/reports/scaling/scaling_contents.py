"""The titles, sentences and tables on scaling."""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter

from stallscope.analysis import ENTRIES
from stallscope.analysis.gains.what_if import WORTH_MENTIONING
from stallscope.analysis.scaling import Scaled, ScalingSeries, TrackRecord, track_record
from stallscope.analysis.scaling.projection import CURVES
from stallscope.analysis.scaling.series import fault_of
from stallscope.arrays.stats import Mean
from stallscope.formatting.lists import counted
from stallscope.formatting.numbers import (
    exact_percent,
    percent,
    plus_minus,
    rate_scale,
    significant,
)
from stallscope.text.figure_words import lost_column, lost_of, lost_to
from stallscope.text.vocabulary import TITLES

from ..document import NOTHING, Table

_INTERVALS = (
    "± is the 95% interval: of several runs from run to run, of a single one from step to step."
)
# Total batches within this factor count as equal: the last one may be smaller.
_SAME_BATCH = 1.05
_TIMES = {1: "twice the size", 2: "four times", 3: "eight times"}


def title(series: ScalingSeries) -> str:
    """Name the job and its data."""
    if not series.data_known:
        return series.name
    return f"{series.name}, {'synthetic' if series.synthetic else 'real'} data"


def headline(series: ScalingSeries) -> str:
    """Write the efficiency at the largest size, and the largest loss."""
    last = series.points[-1]
    if len(series.points) == 1:
        return f"Measured on {counted(last.point.ranks, 'rank')} only"
    if last.efficiency is None:
        first = counted(series.points[0].point.ranks, "rank")
        return (
            f"{_exactly(last.relative)} of the throughput per rank that {first} have, on "
            f"{last.point.ranks:,}"
        )
    text = f"{_exactly(last.efficiency)} efficiency on {counted(last.point.ranks, 'rank')}"
    worst = _worst(last)
    return f"{text}; most is lost to {worst}" if worst else text


def _worst(scaled: Scaled) -> str | None:
    if not scaled.lost:
        return None
    column = lost_column(scaled)
    name, lost = max(zip(ENTRIES, column.parts, strict=True), key=itemgetter(1))
    if lost < (WORTH_MENTIONING - 1) * 100:
        return None
    return f"{TITLES[name].lower()} ({column.text(lost)}%)"


def _exactly(share: Mean) -> str:
    return exact_percent(share.value, share.ci95)


def kind_in_words(series: ScalingSeries) -> str:
    """Say whether scaling is weak or strong, by batch sizes; empty if they are unknown."""
    points = [scaled.point for scaled in series.points]
    if series.unit in ("steps", "epochs") or len(points) < 2 or not series.batches_known:
        return ""
    unit = series.unit.removesuffix("s")
    if series.kind == "weak":
        work = counted(round(points[0].work), unit)
        return f"Weak scaling: {work} per rank in each step on all sizes."
    totals = [point.ranks * point.work for point in points]
    if max(totals) > min(totals) * _SAME_BATCH:
        return ""
    return f"Strong scaling: {counted(round(totals[0]), unit)} in each step on all ranks together."


def difference(series: ScalingSeries) -> str:
    """Say whether sizes differ by more than repeats do."""
    test = series.difference
    if test is None:
        return (
            "One run per size cannot show whether sizes differ by more than chance: run each twice."
            if len(series.points) > 1
            else ""
        )
    p = "p < 0.001" if test.p < 0.001 else f"p = {test.p:.3f}"
    word = "differs" if test.found else "does not differ"
    return f"Throughput per rank {word} between sizes by more than between repeats ({p})."


def how_far_off(series: ScalingSeries) -> str:
    """Describe the errors of such projections for published curves; empty without a projection."""
    several = sum(scaled.point.ranks > 1 for scaled in series.points)
    records = {doublings: track_record(several, doublings) for doublings in _TIMES}
    known = {doublings: record for doublings, record in records.items() if record is not None}
    if not series.projection or not known:
        return ""
    inside = sum(record.inside for record in known.values())
    count = sum(len(record.projections) for record in known.values())
    sizes = "one size" if several == 1 else "two or more sizes"
    off = ", ".join(_off(_TIMES[doublings], record) for doublings, record in known.items())
    return (
        f"Errors of projections from {sizes} on several ranks, on published curves: {off}. {inside} of "
        f"{count} were within their interval, which was widened to contain them."
    )


def _off(times: str, record: TrackRecord) -> str:
    most = f"{record.largest:+.0%}"
    if len(record.projections) == 1:
        return f"{most} at {times}"
    return f"median {percent(record.median)} at {times} (at most {most})"


def rates_table(series: ScalingSeries) -> Table:
    """Return throughput and efficiency, size by size; projected sizes last."""
    unit, factor = rate_scale(series.unit)
    measured, projected = series.points, series.projection
    points = [scaled.point for scaled in measured]
    none = [NOTHING] * len(projected)
    columns = {
        "Ranks": [f"{point.ranks:,}" for point in points]
        + [f"{size.ranks:,} (projected)" for size in projected],
        "Runs": [f"{len(point.runs):,}" for point in points] + none,
        f"Steady, {unit}": [_mean(point.rate.scaled(factor)) for point in points]
        + [_ends(size.rate.scaled(factor), significant) for size in projected],
        f"Whole job, {unit}": [
            _mean(None if point.job_rate is None else point.job_rate.scaled(factor))
            for point in points
        ]
        + none,
        "Efficiency": [percentage(scaled.efficiency) for scaled in measured]
        + [_ends(size.efficiency, percent) for size in projected],
        "Whole job": [percentage(scaled.efficiency_job) for scaled in measured] + none,
        "Against the smallest": [percentage(scaled.relative) for scaled in measured] + none,
    }
    if series.alone is not None:
        alone = [percentage(scaled.efficiency_alone) for scaled in measured]
        columns["Against the program alone"] = alone + none
    # Without a run on one rank, efficiencies are not known at any size.
    columns = {title: cells for title, cells in columns.items() if {*cells} != {NOTHING}}
    note = " ".join(filter(None, (_INTERVALS, _rounded(series), how_far_off(series))))
    return Table.of("Throughput and efficiency", columns, note=note)


def _rounded(series: ScalingSeries) -> str:
    if all(scaled.point.from_steps for scaled in series.points):
        return ""
    return (
        "If a run is known by its epochs only, ± is how much they differ, and what their times were "
        "rounded to."
    )


def lost_table(series: ScalingSeries, *, intervals: bool = True) -> Table | None:
    """Return where efficiency is lost, size by size; None if no size was compared with one rank."""
    compared = [scaled for scaled in series.points if scaled.lost and scaled.point.ranks > 1]
    rows = [_lost_row(scaled, intervals) for scaled in compared]
    if not rows:
        return None
    columns = ("Ranks", "Lost", *(TITLES[name] for name in ENTRIES))
    note = (
        "The parts add up to what is lost. Slower compute of ranks that share a machine counts "
        "as compute."
    )
    return Table("Where efficiency is lost", columns, tuple(rows), note=note)


def _lost_row(scaled: Scaled, intervals: bool) -> tuple[str, ...]:
    column = lost_column(scaled)
    printed = zip((column.total, *column.parts), (lost_of(scaled), *lost_to(scaled)), strict=True)
    cells = (f"{column.text(value, mean.ci95 if intervals else None)}%" for value, mean in printed)
    return (f"{scaled.point.ranks:,}", *cells)


def runs_table(series: ScalingSeries) -> Table:
    """Return the runs of each size with their faults."""
    rows = [
        (f"{scaled.point.ranks:,}", run.run.name, fault_of(run) or NOTHING)
        for scaled in series.points
        for run in scaled.point.runs
    ]
    return Table("Runs", ("Ranks", "Run", "Fault"), tuple(rows), words=frozenset({1, 2}))


def published_table() -> Table:
    """Return published curves to compare with."""
    columns = {
        "Job": [curve.name for curve in CURVES],
        "Efficiency by processes": [
            ", ".join(
                f"{count}: {percent(value)}"
                for count, value in zip(curve.processes, curve.efficiency, strict=True)
                if count > 1
            )
            for curve in CURVES
        ],
        "Source": [curve.source for curve in CURVES],
    }
    return Table.of("Published curves", columns, words=frozenset({0, 1, 2}))


def _mean(mean: Mean | None) -> str:
    if mean is None:
        return NOTHING
    return significant(mean.value) if mean.ci95 is None else plus_minus(mean.value, mean.ci95)


def _ends(mean: Mean | None, shown: Callable[[float], str]) -> str:
    """Return a mean with both ends of its interval, which is not symmetric for projections."""
    if mean is None or mean.ci95 is None:
        return NOTHING if mean is None else shown(mean.value)
    return f"{shown(mean.value)} ({shown(mean.ci95[0])} to {shown(mean.ci95[1])})"


def percentage(mean: Mean | None) -> str:
    """Return a fraction as a percentage, with its interval if it has one."""
    if mean is None:
        return NOTHING
    if mean.ci95 is None or mean.ci95[0] == mean.ci95[1]:
        return percent(mean.value)
    ends = (mean.ci95[0] * 100, mean.ci95[1] * 100)
    return f"{plus_minus(mean.value * 100, ends)}%"

"""Chart how a job scales: rates as bars with the ideal, efficiencies as lines."""

from __future__ import annotations

from stallscope.analysis import ENTRIES
from stallscope.analysis.scaling import Point, ScalingSeries
from stallscope.analysis.scaling.published import CURVES
from stallscope.arrays.stats import Mean
from stallscope.formatting.lists import counted
from stallscope.formatting.numbers import exact_percent, rate, rate_scale
from stallscope.text.scaling import lost_column, lost_to

from .curves import EfficiencyLine, EfficiencyLines
from .kinds import Bar, Segment, StackedBars, drawn_as
from .rates import RateBar, RateBars


def rate_chart(series: ScalingSeries) -> RateBars:
    """Chart throughput over ranks, with the ideal."""
    first = series.points[0].point
    unit, factor = rate_scale(series.unit)
    per_rank = first.rate.value * factor / first.ranks
    bars = [
        RateBar(
            scaled.point.ranks,
            scaled.point.rate.scaled(factor),
            None if scaled.point.job_rate is None else scaled.point.job_rate.scaled(factor),
            scaled.point.ranks * per_rank,
        )
        for scaled in series.points
    ]
    bars += [
        # No ideal: it is far above the projection, and would flatten the measured bars.
        RateBar(size.ranks, size.rate.scaled(factor), None, None, projected=True)
        for size in series.projection
    ]
    last = series.points[-1]
    against = "one rank" if first.ranks == 1 else counted(first.ranks, "rank")
    ideal = exact_percent(last.relative.value, last.relative.ci95)
    sentence = "A single size was measured"
    if len(series.points) > 1:
        sentence = (
            f"{_rate(series, last.point)} on {counted(last.point.ranks, 'rank')}, {ideal} of what "
            f"{against} would give ideally"
        )
    projected = ", pale bars are projected" if series.projection else ""
    key = f"Lines across are ideal{projected}."
    return RateBars("Throughput over ranks", f"{sentence}. {key}", unit, tuple(bars))


def efficiency_chart(series: ScalingSeries) -> EfficiencyLines:
    """Chart efficiency over ranks, its projection, and published curves."""
    points = tuple(
        (scaled.point.ranks, scaled.efficiency or scaled.relative) for scaled in series.points
    )
    lines = [EfficiencyLine("this job", points)]
    onward = tuple(
        (size.ranks, size.efficiency) for size in series.projection if size.efficiency is not None
    )
    if onward:
        lines.append(EfficiencyLine("projected", (points[-1], *onward), projected=True))
    lines += [
        EfficiencyLine(
            curve.name,
            tuple(
                (count, Mean(value, None))
                for count, value in zip(curve.processes, curve.efficiency, strict=True)
            ),
            others=True,
        )
        for curve in CURVES
    ]
    return EfficiencyLines(
        "Efficiency over ranks",
        "Throughput per rank against the smallest size; published curves in grey.",
        tuple(lines),
    )


def losses_chart(series: ScalingSeries) -> StackedBars | None:
    """Chart each size's losses of efficiency. None if no size was compared with one rank."""
    bars = [
        Bar(
            counted(scaled.point.ranks, "rank"),
            tuple(
                Segment(drawn_as(name), lost.value, lost.ci95)
                for name, lost in zip(ENTRIES, lost_to(scaled), strict=True)
            ),
            printed=lost_column(scaled),
        )
        for scaled in series.points
        if scaled.lost is not None and scaled.point.ranks > 1
    ]
    if not bars:
        return None
    return StackedBars(
        "Where efficiency is lost",
        "Efficiency that each size loses, by the entries of the step.",
        "%",
        tuple(bars),
    )


def steps_chart(series: ScalingSeries) -> StackedBars | None:
    """Chart the step by entry at every size. None if no size has measured stages."""
    bars = [
        Bar(
            counted(scaled.point.ranks, "rank"),
            tuple(
                Segment(
                    drawn_as(name),
                    scaled.point.entries_ms[name].value,
                    scaled.point.entries_ms[name].ci95,
                )
                for name in ENTRIES
            ),
        )
        for scaled in series.points
        if scaled.point.entries_ms
    ]
    if not bars:
        return None
    return StackedBars(
        "Step time by cause",
        "Entries that grow with the number of ranks cost efficiency.",
        "ms",
        tuple(bars),
    )


def _rate(series: ScalingSeries, point: Point) -> str:
    if series.unit == "samples":
        return rate(point.rate.value)
    unit, factor = rate_scale(series.unit)
    return f"{point.rate.value * factor:,.1f} {unit}"

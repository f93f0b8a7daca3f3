"""How a job scales, as pictures: rates as bars beside the ideal, efficiencies as lines."""

from __future__ import annotations

from stallscope.analysis import ENTRIES
from stallscope.analysis.scaling import Point, Series
from stallscope.analysis.scaling.published import CURVES
from stallscope.arrays.stats import Mean
from stallscope.formatting.lists import counted
from stallscope.formatting.numbers import exact_percent, rate, rate_scale

from .charts import Bar, Segment, StackedBars
from .rates import EfficiencyLines, Line, RateBar, RateBars


def rate_chart(series: Series) -> RateBars:
    """Throughput over ranks, as bars beside what ideal scaling would give."""
    first = series.points[0].point
    unit, factor = rate_scale(series.unit)
    per_rank = first.rate.value * factor / first.ranks
    bars = [
        RateBar(
            one.point.ranks,
            one.point.rate.scaled(factor),
            None if one.point.job_rate is None else one.point.job_rate.scaled(factor),
            one.point.ranks * per_rank,
        )
        for one in series.points
    ]
    bars += [
        # No ideal: far above what is expected, it would flatten all that was measured.
        RateBar(one.ranks, one.rate.scaled(factor), None, None, projected=True)
        for one in series.projection
    ]
    last = series.points[-1]
    against = "one rank" if first.ranks == 1 else counted(first.ranks, "rank")
    ideal = exact_percent(last.relative.value, last.relative.ci95)
    said = "A single size was measured"
    if len(series.points) > 1:
        said = (
            f"{_rate(series, last.point)} on {counted(last.point.ranks, 'rank')}, {ideal} of what "
            f"{against} would give ideally"
        )
    projected = ", pale bars are projected" if series.projection else ""
    key = f"Lines across are ideal{projected}."
    return RateBars("Throughput over ranks", f"{said}. {key}", unit, tuple(bars))


def efficiency_chart(series: Series) -> EfficiencyLines:
    """Efficiency over ranks, its projection, and published curves beside it."""
    own = tuple((one.point.ranks, one.efficiency or one.relative) for one in series.points)
    lines = [Line("this job", own)]
    onward = tuple(
        (one.ranks, one.efficiency) for one in series.projection if one.efficiency is not None
    )
    if onward:
        lines.append(Line("projected", (own[-1], *onward), projected=True))
    lines += [
        Line(
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
        "Throughput per rank against the smallest size; in grey what others have published.",
        tuple(lines),
    )


def steps_chart(series: Series) -> StackedBars | None:
    """What a step is spent on, size by size. None where no size has measured stages."""
    bars = [
        Bar(
            counted(one.point.ranks, "rank"),
            tuple(
                Segment(name, one.point.entries_ms[name].value, one.point.entries_ms[name].ci95)
                for name in ENTRIES
            ),
        )
        for one in series.points
        if one.point.entries_ms
    ]
    if not bars:
        return None
    return StackedBars(
        "What a step is spent on",
        "Whatever grows with the number of ranks costs efficiency.",
        "ms",
        tuple(bars),
    )


def _rate(series: Series, point: Point) -> str:
    if series.unit == "samples":
        return rate(point.rate.value)
    unit, factor = rate_scale(series.unit)
    return f"{point.rate.value * factor:,.1f} {unit}"

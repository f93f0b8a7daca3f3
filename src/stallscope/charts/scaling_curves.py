"""Chart how a job scales: rates as bars with the ideal, efficiencies as lines."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from stallscope.analysis import ENTRIES
from stallscope.analysis.scaling import Point, ScalingSeries
from stallscope.analysis.scaling.projection import CURVES
from stallscope.arrays.stats import Mean
from stallscope.formatting.lists import counted
from stallscope.formatting.numbers import (
    amount,
    exact_percent,
    finite,
    rate,
    rate_scale,
    significant,
)
from stallscope.text.figure_words import lost_column, lost_to

from .axis import Axis
from .chart_kinds import Bar, Segment, StackedBars, drawn_as
from .curves import EfficiencyLine, EfficiencyLines

_STEADY, _WHOLE_JOB, _PROJECTED = "steady steps", "whole job", "projected"
#: The kinds of bars, in the order of a legend.
RATE_KINDS = (_STEADY, _WHOLE_JOB, _PROJECTED)
#: The width of a bar, as a share of the space for one number of ranks.
BAR_WIDTH = 0.34
# The axis reaches this many times as high as what was measured, whatever is projected.
_MOST_PROJECTED = 2.0
# The height of a label, as a share of the axis.
_LABEL = 0.1
#: The labels of the bars' colours.
RATE_LEGEND = (("steps", _STEADY), ("startup", _WHOLE_JOB))


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


# -- Rates and efficiencies over numbers of ranks -------------------------------------------------


@dataclass(frozen=True)
class RateColumn:
    """One upright bar: its kind, its key of the palette, its opacity, its value."""

    kind: str
    name: str
    opacity: float
    mean: Mean
    #: From the middle of its group to its own.
    offset: float = 0.0

    @property
    def end(self) -> float:
        """The upper end of the bar and its interval."""
        top = finite(self.mean.value) or 0.0
        return max(top, finite(self.mean.ci95[1]) or 0.0) if self.mean.ci95 else top


@dataclass(frozen=True)
class RateBar:
    """The rates on one number of ranks. None is unknown or was not measured."""

    ranks: int
    steady: Mean
    whole_job: Mean | None
    ideal: float | None
    projected: bool = False

    @property
    def columns(self) -> list[RateColumn]:
        """The upright bars, from left to right."""
        kind, opacity = (_PROJECTED, 0.35) if self.projected else (_STEADY, 1.0)
        if self.whole_job is None:
            return [RateColumn(kind, "steps", opacity, self.steady)]
        half = BAR_WIDTH / 2
        return [
            RateColumn(kind, "steps", opacity, self.steady, -half),
            RateColumn(_WHOLE_JOB, "startup", 1.0, self.whole_job, half),
        ]

    @property
    def label(self) -> str:
        """The rate in digits."""
        return significant(self.steady.value)

    @property
    def top(self) -> float:
        """The highest value that is drawn."""
        return max(finite(self.ideal) or 0.0, *(column.end for column in self.columns))

    def label_level(self, axis: Axis) -> float:
        """The level above which the rate is written: that of the ideal only if it is close."""
        top = max(column.end for column in self.columns)
        ideal = finite(self.ideal) or 0.0
        room = _LABEL * (axis.high - axis.low)
        return min(max(top, ideal) if abs(ideal - top) < room else top, axis.high)

    def hover(self, kind: str, value: float, unit: str, mean: Mean | None = None) -> str:
        """Write a bar's tooltip, or that of the ideal."""
        ci95 = None if mean is None else mean.ci95
        return f"{counted(self.ranks, 'rank')}, {kind}: {amount(value, unit, ci95)}"


@dataclass(frozen=True)
class RateBars:
    """Per number of ranks a bar of the rate, with its whisker, and the ideal rate."""

    title: str
    sentence: str
    unit: str
    bars: tuple[RateBar, ...]

    @cached_property
    def axis(self) -> Axis:
        """The axis of rates, cut where projections would dwarf what was measured."""
        highest = max((bar.top for bar in self.bars), default=0.0)
        measured = [bar for bar in self.bars if not bar.projected]
        if measured:
            rates = max(column.end for bar in measured for column in bar.columns)
            highest = min(highest, max(rates * _MOST_PROJECTED, *(bar.top for bar in measured)))
        return Axis.over(0.0, highest, self.unit)

    @property
    def beyond(self) -> list[tuple[int, RateBar]]:
        """The bars, with their places, that end beyond the axis themselves or with their interval."""
        high = self.axis.high * (1 + 1e-9)
        return [(at, bar) for at, bar in enumerate(self.bars) if bar.top > high]

"""Charts of dots and lines between two axes, and the layout that both drawings share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import log2

from stallscope.arrays.stats import Mean
from stallscope.formatting.lists import counted
from stallscope.formatting.numbers import (
    NOT_MEASURED,
    Interval,
    amount,
    finite,
    percent,
    percent_ends,
)

from .axis import Axis

# Margin above and below the values, as a share of the axis.
_ROOM = 0.08
_ROOM_ABOVE = 1.06
# With more doublings, every other number of ranks has a name.
_MOST_DOUBLINGS = 8
# How far a level reaches beyond its first and last run.
_REACH = 0.4


@dataclass(frozen=True)
class RunDot:
    """A run's figure; None was not measured."""

    name: str
    mean: Mean | None


@dataclass(frozen=True)
class Level:
    """The figure's level from one run to another, both included and counted from 1."""

    first: int
    last: int
    begin: float
    end: float


@dataclass(frozen=True)
class OverRuns:
    """Dots in the order of the runs, levels or a drift through them, and marks where levels change.

    The axis does not start at zero, so that differences between runs are visible.
    """

    title: str
    sentence: str
    unit: str
    dots: tuple[RunDot, ...]
    levels: tuple[Level, ...]
    #: The first run of each new level, and its label.
    marks: tuple[tuple[int, str], ...] = ()
    #: The label of the levels.
    level: str = "level of the runs"


@dataclass(frozen=True)
class EfficiencyLine:
    """Efficiencies (fractions) over ranks; ``others`` is a published curve, not the user's own."""

    name: str
    points: tuple[tuple[int, Mean], ...]
    projected: bool = False
    others: bool = False


@dataclass(frozen=True)
class EfficiencyLines:
    """Efficiencies over ranks, every doubling of them as wide as the next."""

    title: str
    sentence: str
    lines: tuple[EfficiencyLine, ...]


@dataclass(frozen=True)
class Dot:
    """A value with its tooltip and whisker; without ``y`` it was not measured."""

    x: float
    y: float | None
    hover: str = ""
    whisker: Interval | None = None


@dataclass(frozen=True)
class Curve:
    """Dots of one style (``own``, ``projected``, ``others``); the name stands at the last one."""

    style: str
    dots: tuple[Dot, ...]
    name: str = ""
    #: Whether a line joins the dots, and whether the dots are visible.
    joined: bool = True
    dotted: bool = True


@dataclass(frozen=True)
class Curves:
    """Curves, labels at the horizontal axis, and vertical marks with labels above them."""

    x: Axis
    x_ticks: tuple[tuple[float, str], ...]
    y: Axis
    curves: tuple[Curve, ...]
    marks: tuple[tuple[float, str], ...] = ()

    @property
    def names(self) -> list[tuple[str, Dot, bool]]:
        """List every named curve's name, last dot, and whether it is published, from the top down."""
        named = [
            (curve.name, curve.dots[-1], curve.style == "others")
            for curve in self.curves
            if curve.name and curve.dots
        ]
        return sorted(named, key=lambda curve: -(curve[1].y or 0.0))


def moved_apart(levels: list[float], apart: float) -> list[float]:
    """Move levels down, from the highest to the lowest, until all are ``apart``."""
    moved: list[float] = []
    for level in levels:
        moved.append(min(level, moved[-1] - apart) if moved else level)
    return moved


def run_curves(chart: OverRuns) -> Curves:
    """Lay out one dot per run, and dashed levels through them."""
    low, high = _limits(chart)
    y = Axis.over(low, high, chart.unit)
    dots = (_run_dot(number, dot, chart.unit, y.factor) for number, dot in enumerate(chart.dots, 1))
    levels = (
        Curve(
            "projected",
            (
                Dot(level.first - _REACH, level.begin * y.factor),
                Dot(level.last + _REACH, level.end * y.factor),
            ),
            dotted=False,
        )
        for level in chart.levels
    )
    runs = len(chart.dots)
    return Curves(
        Axis(0.5, max(runs, 1) + 0.5, "run"),
        tuple((float(number), f"{number}") for number in range(1, runs + 1)),
        y,
        (Curve("own", tuple(dots), joined=False), *levels),
        tuple((run - 0.5, label) for run, label in chart.marks),
    )


def _limits(chart: OverRuns) -> tuple[float, float]:
    means = [dot.mean for dot in chart.dots if dot.mean is not None]
    ends = [end for mean in means for end in (mean.value, *(mean.ci95 or ()))]
    ends += [end for level in chart.levels for end in (level.begin, level.end)]
    known = [end for value in ends if (end := finite(value)) is not None] or [0.0, 1.0]
    low, high = min(known), max(known)
    room = _ROOM * ((high - low) or abs(high) or 1.0)
    return low - room, high + room


def _run_dot(number: int, dot: RunDot, unit: str, factor: float) -> Dot:
    value = None if dot.mean is None else finite(dot.mean.value)
    if dot.mean is None or value is None:
        return Dot(float(number), None, f"{number}. {dot.name}: {NOT_MEASURED}")
    hover = f"{number}. {dot.name}: {amount(value, unit, dot.mean.ci95)}"
    return Dot(float(number), value * factor, hover, _whisker(dot.mean, factor))


def efficiency_curves(chart: EfficiencyLines) -> Curves:
    """Lay out one curve per line over the logarithm of the ranks; published curves are below."""
    points = [point for line in chart.lines for point in line.points]
    most = max((ranks for ranks, _ in points), default=1)
    # Wide intervals are cut off, because they would flatten the measured points.
    highest = max((mean.value for _, mean in points), default=1.0)
    lines = sorted(chart.lines, key=lambda line: not line.others)
    return Curves(
        Axis(0.0, max(log2(most), 1.0), "ranks"),
        tuple((log2(ranks), f"{ranks:,}") for ranks in _named_ranks(most)),
        Axis(0.0, 100 * _ROOM_ABOVE * max(1.0, highest), "%", 100.0),
        tuple(_efficiency_curve(line) for line in lines if line.points),
    )


def _named_ranks(most: int) -> list[int]:
    """Choose the numbers of ranks below the axis: powers of two, and the largest number."""
    step = 1 if log2(most) <= _MOST_DOUBLINGS else 2
    powers = range(0, int(log2(most)) + 1, step)
    # A name that is nearer to the last one would touch it.
    return [*(2**power for power in powers if log2(most) - power >= 0.75 * step), most]


def _efficiency_curve(line: EfficiencyLine) -> Curve:
    style = "others" if line.others else "projected" if line.projected else "own"
    name = "" if line.projected else line.name
    return Curve(style, tuple(_efficiency_dots(line)), name)


def _efficiency_dots(line: EfficiencyLine) -> Iterator[Dot]:
    for ranks, mean in line.points:
        ends = "" if mean.ci95 is None else f" ({percent_ends(mean.ci95)})"
        hover = f"{line.name}, {counted(ranks, 'rank')}: {percent(mean.value)}{ends}"
        whisker = None if line.others else _whisker(mean, 100.0)
        yield Dot(log2(ranks), mean.value * 100.0, hover, whisker)


def _whisker(mean: Mean, factor: float) -> Interval | None:
    if mean.ci95 is None:
        return None
    low, high = ((finite(end) or 0.0) * factor for end in mean.ci95)
    return low, high

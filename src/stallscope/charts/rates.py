"""Rates and efficiencies over numbers of ranks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from stallscope.arrays.stats import Mean
from stallscope.formatting.lists import counted
from stallscope.formatting.numbers import amount, finite, significant

from .axis import Axis

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

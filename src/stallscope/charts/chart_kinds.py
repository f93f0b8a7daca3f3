"""Kinds of charts."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

from stallscope.arrays.types import Floats
from stallscope.formatting.numbers import finite
from stallscope.formatting.sums import SumColumn

# Stages that come first in stacks, with the waiting for each.
_ORDER = ("input", "input_waiting", "compute", "compute_waiting", "other", "other_waiting")


def drawn_as(name: str) -> str:
    """Return the colour of an entry in bars: waiting has the same under both of its names."""
    return "wait" if name == "imbalance" else name


@dataclass(frozen=True)
class Segment:
    """A part of a bar; ``name`` is a key of TITLES and of the palette."""

    name: str
    value: float
    ci95: tuple[float, float] | None = None


@dataclass(frozen=True)
class Bar:
    """A labelled row of segments."""

    label: str
    segments: tuple[Segment, ...]
    #: Whether it stands out, as a straggler does.
    emphasised: bool = False
    #: The segments and their total as printed, if a table has the same figures.
    printed: SumColumn | None = None

    @property
    def total(self) -> float:
        """Sum the segments."""
        return sum(segment.value for segment in self.segments)


@dataclass(frozen=True)
class StackedBars:
    """Horizontal bars made of segments."""

    title: str
    sentence: str
    unit: str
    bars: tuple[Bar, ...]
    #: The meaning of bars that stand out.
    emphasis: str = "straggler"

    @cached_property
    def names(self) -> list[str]:
        """List the names of all segments in order, even if a bar lacks one."""
        names = dict.fromkeys(segment.name for bar in self.bars for segment in bar.segments)
        # Stable: others stay in the order of the bars.
        return sorted(names, key=lambda name: _ORDER.index(name) if name in _ORDER else len(_ORDER))

    @cached_property
    def printed(self) -> list[SumColumn]:
        """Round every bar's segments, by default to the digits of the longest bar."""
        values = [[finite(segment.value) or 0.0 for segment in bar.segments] for bar in self.bars]
        longest = max(values, key=sum, default=[])
        usual = SumColumn.of(longest, sum(longest), unit=self.unit)
        return [
            bar.printed or usual.in_same_digits(parts)
            for bar, parts in zip(self.bars, values, strict=True)
        ]


@dataclass(frozen=True)
class StepWindows:
    """The step times of windows of successive steps, milliseconds, one value per window."""

    #: Steps per window.
    length: int
    #: The step in the middle of each window.
    x: Floats
    median: Floats
    p95: Floats


@dataclass(frozen=True)
class StackedArea:
    """Ledger entries over the run, stacked. Marks, changes and pauses are steps with labels."""

    title: str
    sentence: str
    unit: str
    x_label: str
    x: Floats
    layers: tuple[tuple[str, Floats], ...]
    #: Where epochs start.
    marks: tuple[tuple[float, str], ...] = ()
    #: Where the step time changes for good.
    changes: tuple[tuple[float, str], ...] = ()
    #: Gaps before a step: validation, checkpoints.
    pauses: tuple[tuple[float, str], ...] = ()
    #: Samples per second at every point; None if unknown.
    rates: Floats | None = None
    #: Drawn as lines over the layers; None for too few steps.
    windows: StepWindows | None = None


@dataclass(frozen=True)
class Waterfall:
    """The changes by entry from one total to another."""

    title: str
    sentence: str
    unit: str
    start: tuple[str, float]
    changes: tuple[Segment, ...]
    end: tuple[str, float]
    #: The changes as printed, and the start; the end is their sum.
    printed: SumColumn
    printed_start: float

    @cached_property
    def levels(self) -> tuple[float, ...]:
        """Add up the start and the changes so far: one more level than changes."""
        changes = (finite(change.value) or 0.0 for change in self.changes)
        return tuple(accumulate(changes, initial=self.start[1]))

    @property
    def intervals(self) -> list[tuple[float, float] | None]:
        """Place the interval of each change at the level where it starts."""
        return [
            None if change.ci95 is None else (level + change.ci95[0], level + change.ci95[1])
            for level, change in zip(self.levels, self.changes, strict=False)
        ]

    @property
    def printed_end(self) -> float:
        """Add up the start and the changes as printed."""
        return round(self.printed_start + self.printed.total, self.printed.decimals)

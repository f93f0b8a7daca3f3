"""Kinds of charts, and their colours."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple

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


# -- Colours: one per stage everywhere, distinct for any kind of colour vision --------------------
#
# From the palette of Okabe and Ito (Color Universal Design, 2008), each with its shade for dark
# pages.


class Colour(NamedTuple):
    """A colour for light pages and one for dark pages."""

    light: str
    dark: str

    @property
    def css(self) -> str:
        """Write the pair for CSS, which takes the colour of the page's scheme."""
        return f"light-dark({self.light}, {self.dark})"


#: A colour has one meaning: entries of the same colour are parts of the same whole.
COLOURS: dict[str, Colour] = {
    "input": Colour("#e69f00", "#f0b429"),
    "compute": Colour("#0072b2", "#4ba3d9"),
    "other": Colour("#8a8f98", "#9aa1ab"),
    "imbalance": Colour("#d55e00", "#f07f33"),
    "wait": Colour("#e8b9a0", "#7d4a30"),
    "allreduce": Colour("#009e73", "#2cc79b"),
    "waiting_or_allreduce": Colour("#9bbf9f", "#4f7a63"),
    "startup": Colour("#c3c7cd", "#555b64"),
    "warmup": Colour("#a6abb3", "#6d747e"),
    "steps": Colour("#6a3d9a", "#ae86e0"),
    "rest": Colour("#7d9fb5", "#7f9fb3"),
    "validation": Colour("#882255", "#b8507f"),
    "checkpoint": Colour("#cc79a7", "#dd97bd"),
    "restart": Colour("#7f8f2e", "#aebf5a"),
    "repeated": Colour("#c9a96a", "#c2a35c"),
    "stopped": Colour("#ee6a73", "#f5858c"),
    "epoch_gap": Colour("#f0e442", "#d6cb3a"),
    "unrecorded": Colour("#e6e8eb", "#d9dce0"),
    # The part of a stage that other ranks wait for, in a paler shade of the stage's colour.
    "input_waiting": Colour("#f6d48a", "#8a6a1f"),
    "compute_waiting": Colour("#8fc1e3", "#2b5f80"),
    "other_waiting": Colour("#c9ccd1", "#5f656d"),
    # Losses against a baseline, in the colour of the stage; scale costs more than allreduce.
    "input_stall": Colour("#e69f00", "#f0b429"),
    "scale": Colour("#7a4a21", "#b5835a"),
    # The parts of an allreduce, in shades of its colour.
    "bandwidth": Colour("#009e73", "#2cc79b"),
    "latency": Colour("#6cc9a8", "#1c7a5f"),
    "negotiation": Colour("#00563f", "#b5efdc"),
    "fusion": Colour("#b5e3d2", "#14503f"),
}


#: Colours of text, lines, backgrounds, and bars of totals.
SHADES: dict[str, Colour] = {
    "ink": Colour("#1b2027", "#e8eaed"),
    "muted": Colour("#5b6470", "#a3abb6"),
    "line": Colour("#dfe3e8", "#353c46"),
    "paper": Colour("#ffffff", "#1b1f26"),
    "band": Colour("#fdeee4", "#3a261a"),
    "total": Colour("#4a5361", "#b4bcc8"),
}


#: Colours of severities.
STATUS: dict[str, Colour] = {
    "neutral": Colour("#5b6470", "#a3abb6"),
    "warning": Colour("#9a5b00", "#ffc266"),
    "error": Colour("#b3261e", "#ff8a80"),
}


#: All of them by name.
PALETTE: dict[str, Colour] = {**STATUS, **SHADES, **COLOURS}


#: From zero to the most, ever darker on light pages and ever lighter on dark ones: the order shows
#: without colour vision, too.
HEAT: tuple[Colour, ...] = (
    Colour("#f3efe9", "#303138"),
    Colour("#fbdcb8", "#4d3220"),
    Colour("#f8bd7e", "#74421a"),
    Colour("#ee9648", "#a15513"),
    Colour("#d96c1c", "#cf6d17"),
    Colour("#b2480a", "#f0903c"),
    Colour("#832e05", "#ffba7a"),
    Colour("#521a02", "#ffe5c7"),
)

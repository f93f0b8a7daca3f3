"""Charts of horizontal bars as rows of boxes on one axis: the layout that both drawings share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

from stallscope.analysis import Analysis
from stallscope.arrays.stats import Mean
from stallscope.formatting.numbers import (
    NOT_MEASURED,
    Interval,
    finite,
    percent,
)
from stallscope.formatting.sums import SumColumn
from stallscope.text.gain_words import Gain, gains_note, gains_worth_mentioning, saved, speedup
from stallscope.text.vocabulary import title_of
from stallscope.words import CAUSES

from .axis import Axis
from .chart_kinds import Bar, Segment, StackedBars, Waterfall
from .compared_bars import ComparedBars

# Height of a bar and the gap below it in pixels: stacked bars get thinner the more there are.
_STACKED = ((3, 46.0, 14.0), (8, 28.0, 9.0), (16, 20.0, 6.0))
_THINNEST = (15.0, 4.0)
_WATERFALL = (24.0, 10.0)
# Waterfalls whose changes are a smaller share of the totals have a cut axis, which starts before the
# changes by this share of them, at a tick.
_SMALL_CHANGES, _BEFORE_CHANGES, _TICKS = 0.25, 0.25, 4
_COMPARED = (15.0, 5.0)
#: Opacities of the first series, the second one, and all later ones.
OPACITIES = (1.0, 0.6, 0.35)

# The colours of fixes that are not causes.
_ALL, _WAITING = "total", "wait"


@dataclass(frozen=True)
class Box:
    """A part of a row from ``start`` to ``end``, with the lines of its tooltip."""

    #: A key of the palette.
    name: str
    start: float
    end: float
    hover: tuple[str, ...]
    #: The text inside, with the name if it fits.
    figure: str = ""
    #: Which of OPACITIES.
    shade: int = 0
    #: Whether it takes away from the row before.
    saved: bool = False


@dataclass(frozen=True)
class Row:
    """A label, boxes, a whisker over them, and a text at their end."""

    label: str
    boxes: tuple[Box, ...] = ()
    text: str = ""
    strong: bool = False
    #: Whether the text is only that nothing was measured.
    missing: bool = False
    whisker: Interval | None = None

    @property
    def end(self) -> float:
        """Where the text begins on the axis."""
        ends = [max(box.start, box.end) for box in self.boxes]
        return max([*ends, *(self.whisker or ())], default=0.0)


@dataclass(frozen=True)
class Rows:
    """Rows from the top down, ``height`` pixels high with ``gap`` pixels between them."""

    axis: Axis
    rows: tuple[Row, ...]
    height: float
    gap: float
    #: Whether boxes of one name belong together and follow each other in every row.
    stacked: bool = False
    #: Of stacked boxes, the names in the order of their rows.
    names: Sequence[str] = ()
    #: The level at which each row is joined to the next one.
    joints: tuple[float, ...] = ()

    @property
    def pitch(self) -> float:
        """Pixels from one row to the next."""
        return self.height + self.gap


def stacked_rows(chart: StackedBars) -> Rows:
    """Lay out one row per bar."""
    axis = Axis.over(0.0, max((_total(bar) for bar in chart.bars), default=0.0), chart.unit)
    height, gap = next(
        ((height, gap) for most, height, gap in _STACKED if len(chart.bars) <= most), _THINNEST
    )
    rows = (
        _stacked_row(bar, printed, axis.factor)
        for bar, printed in zip(chart.bars, chart.printed, strict=True)
    )
    return Rows(axis, tuple(rows), height, gap, stacked=True, names=chart.names)


def _stacked_row(bar: Bar, printed: SumColumn, factor: float) -> Row:
    total, text = _total(bar), printed.amount(printed.total)
    ends = accumulate((_size(segment) * factor for segment in bar.segments), initial=0.0)
    boxes = []
    for segment, part, (start, end) in zip(
        bar.segments, printed.parts, pairwise(ends), strict=True
    ):
        figure = printed.amount(part) if finite(segment.value) is not None else NOT_MEASURED
        share = f", {percent(_size(segment) / total)} of {text}" if total else ""
        hover = (
            title_of(segment.name),
            f"{figure}{share}",
            *_interval_line(part, segment.ci95, printed),
            bar.label,
        )
        boxes.append(Box(segment.name, start, end, hover, figure))
    return Row(bar.label, tuple(boxes), text, bar.emphasised)


def waterfall_rows(chart: Waterfall) -> Rows:
    """Lay out the start, every change from where the one before it ends, and the end."""
    printed = chart.printed
    axis = waterfall_axis(chart)
    levels = [level * axis.factor for level in chart.levels]
    start = printed.amount(chart.printed_start)
    base = max(axis.low, 0.0)
    total = Box("total", base, levels[0], (chart.start[0], start))
    rows = [Row(chart.start[0], (total,), start, strong=True)]
    for change, part, span, whisker in zip(
        chart.changes, printed.parts, pairwise(levels), chart.intervals, strict=True
    ):
        title = title_of(change.name)
        text = f"{printed.signed(part)} {printed.scale.unit}"
        hover = (title, text, *_interval_line(part, change.ci95, printed))
        box = Box(change.name, *span, hover, saved=span[1] < span[0])
        rows.append(Row(title, (box,), text, whisker=_scaled(whisker, axis.factor)))
    end = printed.amount(chart.printed_end)
    by = f"{printed.signed(printed.total)} {printed.scale.unit}"
    total = Box("total", base, levels[-1], (chart.end[0], end, by))
    rows.append(Row(chart.end[0], (total,), end, strong=True))
    return Rows(axis, tuple(rows), *_WATERFALL, joints=tuple(levels))


def waterfall_axis(chart: Waterfall) -> Axis:
    """Choose the axis of both totals: from zero, or cut where small changes would be invisible."""
    ends = [*chart.levels, *(end for ends in chart.intervals for end in ends or ())]
    low, high = min(ends), max(ends)
    if low > 0 and 0 < high - low < high * _SMALL_CHANGES:
        axis = Axis.over(low - (high - low) * _BEFORE_CHANGES, high, chart.unit)
        # Starting at a tick, whose label says that the axis is cut.
        return replace(axis, low=max(axis.ticks(_TICKS)[0] - axis.tick_step(_TICKS), 0.0))
    return Axis.over(min(low, 0.0), high, chart.unit)


def _scaled(ends: Interval | None, factor: float) -> Interval | None:
    return None if ends is None else (ends[0] * factor, ends[1] * factor)


def gain_rows(chart: GainBars) -> Rows:
    """Lay out a row per fix; bounds are paler."""
    ends = [end for bar in chart.bars for end in (bar.saved_ms.value, *(bar.saved_ms.ci95 or ()))]
    axis = Axis.over(min(0.0, *ends), max(0.0, *ends), chart.unit)
    return Rows(axis, tuple(_gain_row(bar, axis.factor) for bar in chart.bars), *_WATERFALL)


def _gain_row(bar: GainBar, factor: float) -> Row:
    box = Box(
        bar.name,
        0.0,
        bar.saved_ms.value * factor,
        (bar.title, bar.saves, bar.speedup),
        shade=len(OPACITIES) - 1 if bar.bound else 0,
    )
    return Row(bar.title, (box,), bar.speedup, whisker=_scaled(bar.saved_ms.ci95, factor))


def compared_rows(chart: ComparedBars) -> Rows:
    """Lay out every group: a row with its name, then a row per series."""
    means = [mean for _, group in chart.groups for mean in group if mean is not None]
    ends = [finite(end) or 0.0 for mean in means for end in (mean.value, *(mean.ci95 or ()))]
    axis = Axis.over(min(0.0, *ends, 0.0), max(0.0, *ends, 0.0), chart.unit)
    rows = (
        row for group in range(len(chart.groups)) for row in _group_rows(chart, group, axis.factor)
    )
    return Rows(axis, tuple(rows), *_COMPARED)


def _group_rows(chart: ComparedBars, group: int, factor: float) -> Iterable[Row]:
    name, means = chart.groups[group]
    title = title_of(name)
    yield Row(title, strong=True)
    for index, (label, mean) in enumerate(zip(chart.series, means, strict=True)):
        text = chart.text(group, index)
        if mean is None or finite(mean.value) is None:
            yield Row(label, text=text, missing=True)
            continue
        hover = (title, f"{label}: {text}")
        shade = min(index, len(OPACITIES) - 1)
        box = Box(name, 0.0, mean.value * factor, hover, shade=shade)
        low, high = mean.ci95 or (0.0, 0.0)
        whisker = (low * factor, high * factor) if mean.ci95 else None
        yield Row(label, (box,), text, whisker=whisker)


def _interval_line(part: float, ci95: Interval | None, printed: SumColumn) -> Iterable[str]:
    """Give an interval in the unit of its figure; nothing without one."""
    if ci95 is not None:
        yield f"95% interval: {printed.ends(part, ci95)}"


def _size(segment: Segment) -> float:
    """Give the length that can be drawn: bars have no negative parts."""
    return max(finite(segment.value) or 0.0, 0.0)


def _total(bar: Bar) -> float:
    return sum(map(_size, bar.segments))


# -- Chart the time that each fix saves per step --------------------------------------------------


@dataclass(frozen=True)
class GainBar:
    """A fix and the milliseconds that it saves per step; ``name`` is a key of the palette."""

    title: str
    name: str
    saved_ms: Mean
    speedup: str
    saves: str
    #: Whether the gain is an upper bound.
    bound: bool


@dataclass(frozen=True)
class GainBars:
    """A bar for each fix, with the interval of the saved time."""

    title: str
    sentence: str
    unit: str
    bars: tuple[GainBar, ...]


def gains_chart(analysis: Analysis) -> GainBars | None:
    """Chart the time that each fix saves per step. None if no fix saves anything."""
    gains = gains_worth_mentioning(analysis)
    if not gains:
        return None
    sentence = f"Time saved per step. {gains_note(analysis)}"
    return GainBars("Potential gains", sentence, "ms", tuple(map(_bar, gains)))


def _bar(gain: Gain) -> GainBar:
    what_if = gain.what_if
    kind = what_if.fix.kind
    name = _ALL if kind == "all" else kind if kind in CAUSES else _WAITING
    saves = f"saves {saved(what_if)}"
    return GainBar(gain.title, name, what_if.saved_ms, speedup(what_if), saves, what_if.bound)

"""Stacked horizontal bars."""

from __future__ import annotations

from dataclasses import dataclass

from stallscope.formatting.numbers import NOT_MEASURED, Scale, finite, percent, scale_for
from stallscope.formatting.sums import SumColumn

from ..charts import Bar, Segment, StackedBars
from .axis import Axis, axis_over, horizontal
from .frame import frame, legend, title_of
from .markup import element, rectangle, shortened, text, text_width, tooltip

# Bars get thinner the more there are: height and gap, for up to so many bars.
_SIZES = ((3, 46.0, 14.0), (8, 28.0, 9.0), (16, 20.0, 6.0))
_THINNEST = (15.0, 4.0)
_TALL = 40.0
_TOP = 4.0
_AXIS = 26.0
# Room for half of the axis's first label.
_EDGE = 5.0
# Bold text is wider than plain text.
_BOLD = 1.1


@dataclass(frozen=True)
class _Layout:
    axis: Axis
    scale: Scale
    height: float
    gap: float
    width: float

    def top_of(self, index: int) -> float:
        return _TOP + index * (self.height + self.gap)


def draw_bars(chart: StackedBars, key: str, width: float) -> str:
    """The chart as SVG of that width in pixels."""
    layout = _layout(chart, width)
    bottom = layout.top_of(len(chart.bars))
    parts = [horizontal(layout.axis, 0.0, bottom, layout.scale.unit, most=int(width / 90))]
    rows = enumerate(zip(chart.bars, chart.printed, strict=True))
    parts += [_bar(bar, printed, layout, index) for index, (bar, printed) in rows]
    swatches, end = legend(_legend_entries(chart), bottom + _AXIS, width)
    return frame(chart, key, width, end, *parts, swatches)


def _layout(chart: StackedBars, width: float) -> _Layout:
    most = max((_total(bar) for bar in chart.bars), default=0.0)
    scale = scale_for(most, chart.unit)
    labels = max((text_width(bar.label) for bar in chart.bars), default=0.0)
    left = _EDGE if len(chart.bars) == 1 else min(labels * _BOLD + 10, width * 0.3)
    totals = [printed.amount(printed.total) for printed in chart.printed]
    right = max(map(text_width, totals), default=0.0) * _BOLD + 8
    count = len(chart.bars)
    height, gap = next(((h, g) for limit, h, g in _SIZES if count <= limit), _THINNEST)
    return _Layout(
        axis_over(0.0, most * scale.factor, left, width - right), scale, height, gap, width
    )


def _bar(bar: Bar, printed: SumColumn, layout: _Layout, index: int) -> str:
    top, axis = layout.top_of(index), layout.axis
    middle = top + layout.height / 2 + 4.5
    weight = "strong" if bar.emphasised else None
    parts = []
    if bar.emphasised:
        band = layout.height + layout.gap
        parts.append(rectangle(0, top - layout.gap / 2, layout.width, band, rx=3, class_="band"))
    if axis.start > _EDGE:
        label = shortened(bar.label, axis.start - 8)
        parts.append(text(label, axis.start - 8, middle, text_anchor="end", class_=weight))
    reached = 0.0
    for segment, figure in zip(bar.segments, printed.parts, strict=True):
        value = _size(segment) * layout.scale.factor
        if value > 0:
            span = (reached, reached + value)
            what = f"{bar.label}: {_said(segment, figure, printed)}{_share(segment, bar)}"
            box = _segment(segment, layout, span, top, what)
            parts.append(box + _inside(segment, printed.amount(figure), layout, span, top))
        reached += value
    total = printed.amount(printed.total)
    parts.append(text(total, axis.at(reached) + 7, middle, class_=weight))
    return element("g", *parts)


def _segment(
    segment: Segment, layout: _Layout, span: tuple[float, float], top: float, what: str
) -> str:
    x, width = _extent(layout, span)
    style = f"fill-{segment.name}"
    return rectangle(x, top, width, layout.height, tooltip(what), class_=style, rx=1.5)


def _extent(layout: _Layout, span: tuple[float, float]) -> tuple[float, float]:
    """Where a segment begins and how wide it is, with a gap after it where there is room for one."""
    x, end = layout.axis.at(span[0]), layout.axis.at(span[1])
    return x, end - x - 1 if end - x > 3 else end - x


def _said(segment: Segment, figure: float, printed: SumColumn) -> str:
    """The segment's name and its figure with its interval."""
    if finite(segment.value) is None:
        return f"{title_of(segment.name)} {NOT_MEASURED}"
    return f"{title_of(segment.name)} {printed.amount(figure, segment.ci95)}"


def _share(segment: Segment, bar: Bar) -> str:
    total = _total(bar)
    return f", {percent(_size(segment) / total)}" if total else ""


def _inside(
    segment: Segment, said: str, layout: _Layout, span: tuple[float, float], top: float
) -> str:
    """The segment's name and figure, as far as they fit into it."""
    x, width = _extent(layout, span)
    middle, value = x + width / 2, said.partition(" ")[0]
    lines = [title_of(segment.name), said] if layout.height >= _TALL else [value]
    if max(map(text_width, lines)) + 8 > width:
        lines = [value]
    if text_width(lines[-1]) + 6 > width:
        return ""
    first = top + layout.height / 2 + 4.5 - 8 * (len(lines) - 1)
    style = f"inside on-{segment.name}"
    return "".join(
        text(content, middle, first + 16 * index, text_anchor="middle", class_=style)
        for index, content in enumerate(lines)
    )


def _legend_entries(chart: StackedBars) -> list[tuple[str, str]]:
    """A single bar's legend has the values, too; of several bars, what any of them has."""
    if len(chart.bars) == 1:
        (bar,), (printed,) = chart.bars, chart.printed
        return [
            (segment.name, _said(segment, figure, printed))
            for segment, figure in zip(bar.segments, printed.parts, strict=True)
        ]
    names = dict.fromkeys(segment.name for bar in chart.bars for segment in bar.segments)
    return [(name, title_of(name)) for name in names]


def _size(segment: Segment) -> float:
    """What can be drawn of a value: bars have no negative pieces."""
    return max(finite(segment.value) or 0.0, 0.0)


def _total(bar: Bar) -> float:
    return sum(map(_size, bar.segments))

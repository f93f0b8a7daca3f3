"""Upright bars of rates, and the ideal rate across them."""

from __future__ import annotations

from ..axis import Axis
from ..rates import BAR_WIDTH, RateBar, RateBars, RateColumn
from ..text_width import text_width
from .axis import AXIS_HEIGHT, PixelAxis, left_margin, named_below, vertical
from .markup import coordinate, element, line, rectangle, text, tooltip, whisker

_TOP = 24.0
# Above a mark at the axis' end.
_LABEL_TOP = 12.0
_TICKS = 6
_WIDEST_GROUP = 120.0
# The length of the ideal's line, as a share of a group.
_IDEAL = 0.8


def draw_rate_bars(chart: RateBars, width: float) -> tuple[list[str], float]:
    """Draw the chart into a width; return the markup and its height."""
    y = PixelAxis(chart.axis, _TOP + width * 0.22 + 120, _TOP)
    left = left_margin(chart.axis, _TICKS, "ranks")
    count = max(len(chart.bars), 1)
    group = min((width - left - 8) / count, _WIDEST_GROUP)
    x = PixelAxis(Axis(-0.5, count - 0.5, "ranks"), left, left + group * count)
    parts = [vertical(y, left, width - 8, most=_TICKS)]
    parts += [_group(bar, x.at(at), group, y, chart.unit) for at, bar in enumerate(chart.bars)]
    ranks = [(float(at), f"{bar.ranks:,}") for at, bar in enumerate(chart.bars)]
    parts.append(named_below(x, y.start, ranks))
    return parts, y.start + AXIS_HEIGHT


def _group(bar: RateBar, middle: float, width: float, y: PixelAxis, unit: str) -> str:
    thick = width * BAR_WIDTH
    parts = [
        _column(bar, column, middle + column.offset * width - thick / 2, thick, y, unit)
        for column in bar.columns
    ]
    if bar.ideal is not None:
        at, half = y.at(bar.ideal), width * _IDEAL / 2
        tip = tooltip(bar.hover("ideal", bar.ideal, unit))
        parts.append(line(middle - half, at, middle + half, at, tip, class_="ideal"))
    if bar.top > y.axis.high * (1 + 1e-9):
        path = f"M{coordinate(middle - 5)} {coordinate(y.end)}l10 0l-5 -9Z"
        parts.append(element("path", d=path, class_="beyond"))
    if text_width(bar.label) < width:
        above = max(y.at(bar.label_level(y.axis)) - 6, _LABEL_TOP)
        parts.append(text(bar.label, middle, above, class_="tick", text_anchor="middle"))
    return element("g", *parts)


def _column(
    bar: RateBar, column: RateColumn, x: float, width: float, y: PixelAxis, unit: str
) -> str:
    mean = column.mean
    top, tip = y.at(mean.value), tooltip(bar.hover(column.kind, mean.value, unit, mean))
    style = f"fill-{column.name}{'' if column.opacity == 1 else ' paler-2'}"
    shape = rectangle(x, top, width - 2, y.start - top, tip, class_=style, rx=1.5)
    if mean.ci95 is None:
        return shape
    low, high = map(y.at, mean.ci95)
    return shape + whisker(x + width / 2 - 1, low, x + width / 2 - 1, high)

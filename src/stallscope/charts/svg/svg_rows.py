"""Rows of boxes, and bars of rates."""

from __future__ import annotations

from ..axis import BOLD, Axis, shortened, text_width
from ..rows import Box, Row, Rows
from ..scaling_curves import BAR_WIDTH, RateBar, RateBars, RateColumn
from .markup import (
    AXIS_HEIGHT,
    PixelAxis,
    coordinate,
    element,
    horizontal,
    left_margin,
    line,
    named_below,
    rectangle,
    text,
    tooltip,
    vertical,
    whisker,
)

_TOP = 4.0
# Two lines fit into bars of this height.
_TALL = 40.0
# The largest share of the width for labels.
_LABELS_OF_STACKED, _LABELS = 0.3, 0.42
# Half the width of the axis' first label.
_EDGE = 5.0
# From a row's middle to the foot of its text.
_FOOT = 4.5

_RATES_TOP = 24.0
# Above a mark at the axis' end.
_LABEL_TOP = 12.0
_TICKS = 6
_WIDEST_GROUP = 120.0
# The length of the ideal's line, as a share of a group.
_IDEAL = 0.8


def draw_rows(rows: Rows, width: float) -> tuple[list[str], float]:
    """Draw rows into a width; return the markup and its height."""
    axis = _axis(rows, width)
    bottom = _TOP + len(rows.rows) * rows.pitch
    parts = [horizontal(axis, 0.0, bottom)]
    for at, row in enumerate(rows.rows):
        top = _TOP + at * rows.pitch
        if rows.stacked and row.strong:
            parts.append(rectangle(0, top - rows.gap / 2, width, rows.pitch, rx=3, class_="band"))
        parts.append(_row(row, rows, axis, top))
    for at, level in enumerate(rows.joints):
        x, top = axis.at(level), _TOP + at * rows.pitch + rows.height
        parts.append(line(x, top, x, top + rows.gap, class_="mark"))
    return parts, bottom + AXIS_HEIGHT


def _axis(rows: Rows, width: float) -> PixelAxis:
    labels = max((text_width(row.label) for row in rows.rows), default=0.0) * BOLD + 10
    left = min(labels, width * (_LABELS_OF_STACKED if rows.stacked else _LABELS))
    right = max((text_width(row.text) for row in rows.rows), default=0.0) * BOLD + 8
    alone = rows.stacked and len(rows.rows) == 1
    return PixelAxis(rows.axis, _EDGE if alone else left, width - right)


def _row(row: Row, rows: Rows, axis: PixelAxis, top: float) -> str:
    foot = top + rows.height / 2 + _FOOT
    style = "strong" if row.strong else None
    parts = []
    if axis.start > _EDGE:
        left = axis.start - 8
        parts.append(text(shortened(row.label, left), left, foot, text_anchor="end", class_=style))
    parts += [_box(box, rows, axis, top) for box in row.boxes if box.start != box.end]
    if row.whisker:
        low, high = map(axis.at, row.whisker)
        middle = top + rows.height / 2
        parts.append(whisker(low, middle, high, middle))
    if row.text:
        parts.append(
            text(row.text, axis.at(row.end) + 7, foot, class_="tick" if row.missing else style)
        )
    return element("g", *parts)


def _box(box: Box, rows: Rows, axis: PixelAxis, top: float) -> str:
    x, end = sorted((axis.at(box.start), axis.at(box.end)))
    # Boxes are a pixel apart if they are wide enough; even the smallest is visible.
    width = end - x - 1 if rows.stacked and end - x > 3 else max(end - x, 1.0)
    style = f"fill-{box.name}{' saved' if box.saved else ''}"
    if box.shade:
        style += f" paler-{box.shade}"
    shape = rectangle(x, top, width, rows.height, tooltip(*box.hover), class_=style, rx=1.5)
    return shape + (_inside(box, rows, x, width, top) if box.figure else "")


def _inside(box: Box, rows: Rows, x: float, width: float, top: float) -> str:
    """Write the parts of the box's name and figure that fit into it."""
    value = box.figure.partition(" ")[0]
    lines = [box.hover[0], box.figure] if rows.height >= _TALL else [value]
    if max(map(text_width, lines)) + 8 > width:
        lines = [value]
    if text_width(lines[-1]) + 6 > width:
        return ""
    first = top + rows.height / 2 + _FOOT - 8 * (len(lines) - 1)
    style = f"inside on-{box.name}"
    return "".join(
        text(content, x + width / 2, first + 16 * at, text_anchor="middle", class_=style)
        for at, content in enumerate(lines)
    )


# -- Upright bars of rates, and the ideal rate across them ----------------------------------------


def draw_rate_bars(chart: RateBars, width: float) -> tuple[list[str], float]:
    """Draw the chart into a width; return the markup and its height."""
    y = PixelAxis(chart.axis, _RATES_TOP + width * 0.22 + 120, _RATES_TOP)
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

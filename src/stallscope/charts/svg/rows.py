"""Rows of boxes."""

from __future__ import annotations

from ..rows import Box, Row, Rows
from ..text_width import BOLD, shortened, text_width
from .axis import AXIS_HEIGHT, PixelAxis, horizontal
from .markup import element, line, rectangle, text, tooltip, whisker

_TOP = 4.0
# Two lines fit into bars of this height.
_TALL = 40.0
# The largest share of the width for labels.
_LABELS_OF_STACKED, _LABELS = 0.3, 0.42
# Half the width of the axis' first label.
_EDGE = 5.0
# From a row's middle to the foot of its text.
_FOOT = 4.5


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

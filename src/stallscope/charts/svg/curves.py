"""Dots and lines between two axes."""

from __future__ import annotations

from collections.abc import Sequence

from ..curves import Curve, Curves, Dot, moved_apart
from ..text_width import shortened, text_width
from .axis import AXIS_HEIGHT, PixelAxis, left_margin, named_below, vertical
from .markup import coordinate, element, line, text, tooltip, whisker

_TOP = 26.0
_TICKS = 6
_NAME_LINE = 15.0
# The largest share of the width for names.
_NAMES = 0.36


def draw_curves(curves: Curves, width: float) -> tuple[list[str], float]:
    """Draw curves into a width; return the markup and its height."""
    labels = [name for name, _, _ in curves.names]
    listed: list[str] = []
    if max(map(text_width, labels), default=0.0) + 16 > width * _NAMES:
        labels, listed = _numbered(curves)
    right = min(max(map(text_width, labels), default=-4.0) + 16, width * _NAMES)
    # Names need space between them.
    height = width * 0.22 + 126 if curves.names else width * 0.15 + 110
    y = PixelAxis(curves.y, _TOP + height, _TOP)
    left = left_margin(curves.y, _TICKS, curves.x.unit)
    x = PixelAxis(curves.x, left, width - right)
    parts = [vertical(y, x.start, x.end, most=_TICKS)]
    parts += [_mark(at, label, x, y, width) for at, label in curves.marks]
    parts += [_line(curve, x, y) for curve in curves.curves if curve.joined]
    parts += [
        _dot(dot, curve, x, y) for curve in curves.curves if curve.dotted for dot in curve.dots
    ]
    parts += _names(curves, labels, x, y, right - 12)
    parts.append(named_below(x, y.start, list(curves.x_ticks)))
    bottom = y.start + AXIS_HEIGHT
    parts += [
        text(shortened(name, width), 0.0, bottom + (at + 1) * _NAME_LINE, class_="tick")
        for at, name in enumerate(listed)
    ]
    return parts, bottom + (len(listed) + 1) * _NAME_LINE if listed else bottom


def _numbered(curves: Curves) -> tuple[list[str], list[str]]:
    """Number the published curves; return the labels in the chart, and the names for the list below."""
    labels: list[str] = []
    listed: list[str] = []
    for name, _, others in curves.names:
        if others:
            listed.append(f"{len(listed) + 1}: {name}")
        labels.append(f"{len(listed)}" if others else name)
    return labels, listed


def _mark(value: float, label: str, x: PixelAxis, y: PixelAxis, width: float) -> str:
    at, label = x.at(value), shortened(label, width - 24)
    # To the side with space.
    before = at + text_width(label) > width
    return line(at, y.end - 6, at, y.start, class_="change") + text(
        label,
        at - 5 if before else at + 5,
        y.end - 10,
        class_="strong",
        text_anchor="end" if before else None,
    )


def _line(curve: Curve, x: PixelAxis, y: PixelAxis) -> str:
    spots = ((x.at(dot.x), y.at(dot.y)) for dot in curve.dots if dot.y is not None)
    path = "L".join(f"{coordinate(left)} {coordinate(top)}" for left, top in spots)
    return element("path", d=f"M{path}", class_=f"curve {curve.style}")


def _dot(dot: Dot, curve: Curve, x: PixelAxis, y: PixelAxis) -> str:
    at, tip = x.at(dot.x), tooltip(dot.hover)
    if dot.y is None:
        return element("text", "–", tip, x=at, y=y.start - 4, class_="tick", text_anchor="middle")
    radius = 3.0 if curve.style == "others" else 4.5
    circle = element("circle", tip, cx=at, cy=y.at(dot.y), r=radius, class_=f"dot {curve.style}")
    if dot.whisker is None:
        return circle
    low, high = map(y.at, dot.whisker)
    return element("g", whisker(at, low, at, high), circle)


def _names(
    curves: Curves, labels: Sequence[str], x: PixelAxis, y: PixelAxis, room: float
) -> list[str]:
    """Write labels after the last dots, with lines to those that had to be moved."""
    parts = []
    wanted = [y.at(dot.y or 0.0) for _, dot, _ in curves.names]
    # Pixels grow downwards, values upwards.
    moved = [-level for level in moved_apart([-at for at in wanted], _NAME_LINE)]
    for (_, dot, others), label, at, top in zip(curves.names, labels, wanted, moved, strict=True):
        end = x.at(dot.x)
        if top - at > _NAME_LINE or x.end - end > 2:
            parts.append(line(end + 5, at, x.end + 4, top, class_="leader"))
        style = "tick" if others else "strong"
        parts.append(text(shortened(label, room), x.end + 8, top + 4, class_=style))
    return parts

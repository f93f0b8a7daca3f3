"""Axes on pixels, with grid lines and labels."""

from __future__ import annotations

from dataclasses import dataclass

from ..axis import Axis
from ..text_width import text_width
from .markup import line, text

#: The height of labels below a horizontal axis.
AXIS_HEIGHT = 26.0
_PADDING = 8.0
_DOWN = 18.0
# Pixels from one label of a horizontal axis to the next.
_APART = 70.0


@dataclass(frozen=True)
class PixelAxis:
    """An axis on pixels from ``start`` to ``end``."""

    axis: Axis
    start: float
    end: float

    def at(self, value: float) -> float:
        """Find the pixel of a value; that of the axis' end for values beyond it."""
        low, high = self.axis.low, self.axis.high
        inside = min(max(value, low), high)
        return self.start + (inside - low) / (high - low) * (self.end - self.start)

    def holds(self, value: float) -> bool:
        """Return whether a value lies on the axis."""
        return self.axis.low <= value <= self.axis.high


def left_margin(axis: Axis, most: int, x_name: str = "") -> float:
    """Return the width of a vertical axis' labels, and of the name next to the horizontal axis."""
    return max(map(text_width, [*axis.labels(axis.ticks(most)), x_name])) + 2 * _PADDING


def horizontal(axis: PixelAxis, top: float, bottom: float) -> str:
    """Draw grid lines down from ``top``, and labels below ``bottom``."""
    parts = []
    most = max(int((axis.end - axis.start) / _APART), 1)
    for tick, x, label in _ticks(axis, most):
        parts.append(line(x, top, x, bottom, class_="zero" if tick == 0 else "grid"))
        parts.append(text(label, x, bottom + 16, class_="tick", text_anchor="middle"))
    return "".join(parts)


def vertical(axis: PixelAxis, left: float, right: float, most: int) -> str:
    """Draw grid lines to the right of ``left``, and labels before it."""
    parts = []
    for tick, y, label in _ticks(axis, most):
        parts.append(line(left, y, right, y, class_="zero" if tick == 0 else "grid"))
        parts.append(text(label, left - _PADDING, y + 4, class_="tick", text_anchor="end"))
    return "".join(parts)


def named_below(axis: PixelAxis, bottom: float, names: list[tuple[float, str]]) -> str:
    """Write names below values on a horizontal axis, as many as fit, and the axis' own before them."""
    label = text(
        axis.axis.unit, axis.start - _PADDING, bottom + _DOWN, class_="tick", text_anchor="end"
    )
    widest = max((text_width(name) for _, name in names), default=0.0) + 6
    every = -(-len(names) // max(int((axis.end - axis.start) / widest), 1)) or 1
    return label + "".join(
        text(name, axis.at(value), bottom + _DOWN, class_="tick", text_anchor="middle")
        for value, name in names[::every]
    )


def _ticks(axis: PixelAxis, most: int) -> list[tuple[float, float, str]]:
    ticks = axis.axis.ticks(most)
    labels = axis.axis.labels(ticks)
    return [(tick, axis.at(tick), label) for tick, label in zip(ticks, labels, strict=True)]

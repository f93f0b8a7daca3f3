"""SVG as text: elements, escaped, and axes."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

from ..axis import Axis, text_width

# Half of a cap, in pixels.
_CAP = 3.0

#: The height of labels below a horizontal axis.
AXIS_HEIGHT = 26.0
_PADDING = 8.0
_DOWN = 18.0
# Pixels from one label of a horizontal axis to the next.
_APART = 70.0


def element(name: str, *children: str, **attributes: object) -> str:
    """Write an element. ``class_`` is class, underscores are dashes, None is left out.

    Children are markup already; values of attributes are escaped here.
    """
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(_attribute(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    inner = "".join(children)
    return f"<{name}{written}>{inner}</{name}>" if inner else f"<{name}{written}/>"


def text(content: str, x: float, y: float, **attributes: object) -> str:
    """Write a line of text, anchored at its left by default; see ``text_anchor``."""
    return element("text", escape(content), x=x, y=y, **attributes)


def tooltip(*lines: str) -> str:
    """Write the tooltip of the parent element."""
    return element("title", escape("\n".join(lines)))


def rectangle(x: float, y: float, width: float, height: float, *inner: str, **more: object) -> str:
    """Draw a rectangle."""
    return element("rect", *inner, x=x, y=y, width=width, height=height, **more)


def line(x1: float, y1: float, x2: float, y2: float, *inner: str, **more: object) -> str:
    """Draw a line."""
    return element("line", *inner, x1=x1, y1=y1, x2=x2, y2=y2, **more)


def whisker(x1: float, y1: float, x2: float, y2: float) -> str:
    """Draw a line with a cap across each of its ends."""
    across, down = (0.0, _CAP) if y1 == y2 else (_CAP, 0.0)
    ends = (
        line(x - across, y - down, x + across, y + down, class_="whisker")
        for x, y in ((x1, y1), (x2, y2))
    )
    return line(x1, y1, x2, y2, class_="whisker") + "".join(ends)


def _attribute(value: object) -> str:
    return coordinate(value) if isinstance(value, float) else str(value)


def coordinate(value: float) -> str:
    """Write hundredths of a pixel at most, and no zeros after them."""
    short = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if short == "-0" else short


# -- Axes on pixels, with grid lines and labels ---------------------------------------------------


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
        # The last label has the unit, and would be cut off at the end of the axis.
        middle = min(x, axis.end + _PADDING - text_width(label) / 2)
        parts.append(text(label, middle, bottom + 16, class_="tick", text_anchor="middle"))
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

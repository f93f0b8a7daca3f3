"""SVG as text: elements, escaped."""

from __future__ import annotations

from html import escape

# Half of a cap, in pixels.
_CAP = 3.0


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

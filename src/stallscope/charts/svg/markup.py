"""SVG as text: elements, escaped; and how wide a text will be."""

from __future__ import annotations

import unicodedata
from html import escape

TEXT_SIZE = 13.0
_ELLIPSIS = "…"
_SLIM = frozenset(" .,:;'|!iljtfrI()[]")
_BROAD = frozenset("mw%±+−<>=@")


def element(name: str, *children: str, **attributes: object) -> str:
    """An element. ``class_`` is class, underscores are dashes, None is left out.

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
    """A line of text; anchored at its left unless ``text_anchor`` says otherwise."""
    return element("text", escape(content), x=x, y=y, **attributes)


def tooltip(content: str) -> str:
    """What a browser shows when the pointer rests on the element that this is a child of."""
    return element("title", escape(content))


def rectangle(x: float, y: float, width: float, height: float, *inner: str, **more: object) -> str:
    return element("rect", *inner, x=x, y=y, width=width, height=height, **more)


def line(x1: float, y1: float, x2: float, y2: float, **more: object) -> str:
    return element("line", x1=x1, y1=y1, x2=x2, y2=y2, **more)


def text_width(content: str, size: float = TEXT_SIZE) -> float:
    """Pixels that a text takes in a wide sans-serif; in common ones it takes less."""
    return size * sum(map(_relative_width, content))


def _relative_width(character: str) -> float:
    if unicodedata.east_asian_width(character) in "WF":
        return 1.05
    if character in _SLIM:
        return 0.38
    return 0.86 if character in _BROAD or character.isupper() else 0.63


def shortened(content: str, width: float) -> str:
    """The text, cut with an ellipsis where it would be wider than that."""
    if text_width(content) <= width:
        return content
    while content and text_width(content + _ELLIPSIS) > width:
        content = content[:-1]
    return content.rstrip() + _ELLIPSIS


def _attribute(value: object) -> str:
    return coordinate(value) if isinstance(value, float) else str(value)


def coordinate(value: float) -> str:
    """Hundredths of a pixel at most, and no zeros after."""
    short = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if short == "-0" else short

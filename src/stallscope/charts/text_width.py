"""Estimate the width of text."""

from __future__ import annotations

import unicodedata

TEXT_SIZE = 13.0
#: Bold text is this much wider.
BOLD = 1.1
_ELLIPSIS = "…"
_SLIM = frozenset(" .,:;'|!iljtfrI()[]")
_BROAD = frozenset("mw%±+−<>=@")


def text_width(content: str, size: float = TEXT_SIZE) -> float:
    """Estimate a text's pixels in a wide sans-serif font; common fonts take less."""
    return size * sum(map(_relative_width, content))


def _relative_width(character: str) -> float:
    if unicodedata.east_asian_width(character) in "WF":
        return 1.05
    if character in _SLIM:
        return 0.38
    return 0.86 if character in _BROAD or character.isupper() else 0.63


def shortened(content: str, width: float) -> str:
    """Cut a text that is wider than ``width`` pixels, with an ellipsis at its end."""
    if text_width(content) <= width:
        return content
    while content and text_width(content + _ELLIPSIS) > width:
        content = content[:-1]
    return content.rstrip() + _ELLIPSIS

"""Make text from logs safe to show: write invisible characters as escapes."""

from __future__ import annotations

import re
import unicodedata

# Controls, invisible and direction-changing format characters, lone surrogates, private use,
# unassigned, line and paragraph separators: they hide or reorder text, or break terminals and files.
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_BLANKS = re.compile(r"[\t\n\v\f\r]+")


def plain(text: str) -> str:
    """Return the text on one line, with invisible characters as escapes."""
    text = _BLANKS.sub(" ", text)
    if text.isascii() and text.isprintable():
        return text
    return "".join(map(_seen, text))


def _seen(character: str) -> str:
    if unicodedata.category(character) not in _UNSEEN:
        return character
    return f"\\u{ord(character):04x}"

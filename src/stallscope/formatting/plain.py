"""Text from logs, made fit for people: what cannot be seen is written out."""

from __future__ import annotations

import re
import unicodedata

# Controls, invisible and direction-changing format characters, lone surrogates, private use,
# unassigned, line and paragraph separators: they hide or reorder text, or break terminals and files.
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_BLANKS = re.compile(r"[\t\n\v\f\r]+")


def plain(text: str) -> str:
    """The text on one line, with characters that cannot be seen written as escapes."""
    text = _BLANKS.sub(" ", text)
    if text.isascii() and text.isprintable():
        return text
    return "".join(map(_seen, text))


def _seen(character: str) -> str:
    if unicodedata.category(character) not in _UNSEEN:
        return character
    return f"\\u{ord(character):04x}"

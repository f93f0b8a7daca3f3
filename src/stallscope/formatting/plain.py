"""Make text from logs safe to show; frames of a stack, and names that a user may have meant."""

from __future__ import annotations

import re
import unicodedata
from difflib import get_close_matches
from pathlib import PurePath
from typing import Iterable

# Controls, invisible and direction-changing format characters, lone surrogates, private use,
# unassigned, line and paragraph separators: they hide or reorder text, or break terminals and files.
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_BLANKS = re.compile(r"[\t\n\v\f\r]+")
#: The replacement for a removed name.
LEFT_OUT = "…"
# Absolute paths, and URLs with their queries.
_PATH = re.compile(
    r"""[A-Za-z][A-Za-z0-9+.-]*://[^\s'",;]+"""
    r"""|(?<![\w./])(?:~[\w.+-]*|\.{1,2})?/[^\s'",;:]+|\b[A-Za-z]:\\[^\s'",;]+|\\\\[^\s'",;]+"""
)
_ADDRESS = re.compile(
    r"\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b|\b(?:[0-9a-fA-F]{1,4}:){3,}[0-9a-fA-F:]+"
)
_EMAIL = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+")


def plain(text: str) -> str:
    """Return the text on one line, with invisible characters as escapes."""
    text = _BLANKS.sub(" ", text)
    if text.isascii() and text.isprintable():
        return text
    return "".join(map(_seen, text))


def without_paths(text: str) -> str:
    """Remove absolute paths, URLs, IP addresses and addresses of mail from a text."""
    return _ADDRESS.sub(LEFT_OUT, _PATH.sub(LEFT_OUT, _EMAIL.sub(LEFT_OUT, text)))


def _seen(character: str) -> str:
    if unicodedata.category(character) not in _UNSEEN:
        return character
    return f"\\u{ord(character):04x}"


# -- Write a place in the user's code in a sentence -----------------------------------------------


def in_frame(frame: tuple[str, int, str] | None) -> str:
    """Write a frame (file, line, function) after a clause; empty without one."""
    if frame is None:
        return ""
    path, line, function = frame
    return f", in `{function}` at `{PurePath(path).name}:{line}`"


# -- Suggest the known name that a user may have misspelt -----------------------------------------


def did_you_mean(written: str, known: Iterable[str], otherwise: str) -> str:
    """Return ``did you mean "NAME"?`` with the closest name, or another hint if none is close.

    Args:
        written: what the user has written.
        known: the names that exist.
        otherwise: the hint if none of them is close.
    """
    near = get_close_matches(written, list(known), n=1)
    return f'did you mean "{near[0]}"?' if near else otherwise


def code_parts(text: str) -> list[tuple[str, bool]]:
    """Split a sentence into words and code; unpaired backticks are words."""
    split = text.split("`")
    if len(split) % 2 == 0:
        return [(text, False)]
    return [(part, bool(at % 2)) for at, part in enumerate(split) if part]

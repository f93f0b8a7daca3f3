"""The words of a condition: numbers, texts, names, signs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from stallscope.formatting.plain import plain

from .syntax import SIMPLE_PART

#: Words of the language itself; no figure can be called like them.
KEYWORDS = ("and", "or", "not", "surely")
#: Longer conditions are better written as several.
LONGEST = 1000
_MOST_WORDS = 200

_TEXT = r"'[^']*'|\"[^\"]*\""
_PART = rf"(?:{SIMPLE_PART.pattern}|{_TEXT})"
_TOKEN = re.compile(
    rf"""\s*(?:(?P<number>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"""
    rf"""|(?P<name>{SIMPLE_PART.pattern}(?:\.{_PART})*)"""
    rf"""|(?P<text>{_TEXT})|(?P<sign>==|!=|>=|<=|[-<>=()+*/%]))"""
)


@dataclass(frozen=True)
class Token:
    """A word of the text. ``sign`` stands for keywords, too."""

    kind: Literal["number", "name", "text", "sign", "end"]
    text: str
    #: Where it begins, counted from 1.
    column: int

    @property
    def parts(self) -> tuple[str, ...]:
        """Of a name its parts, of a text the text alone, without their quotes."""
        found = re.findall(rf"{SIMPLE_PART.pattern}|{_TEXT}", self.text)
        return tuple(part[1:-1] if part[0] in "'\"" else part for part in found)


def wrong(column: int, what: str) -> ValueError:
    """What is wrong, and where."""
    return ValueError(f"column {column}: {plain(what)}")


def tokens_of(text: str) -> list[Token]:
    """The words of a text, and its end.

    Raises:
        ValueError: if there is something else in it, or too much.
    """
    if len(text) > LONGEST:
        raise ValueError(
            f"a condition has at most {LONGEST:,} characters, and this one {len(text):,}"
        )
    found: list[Token] = []
    at = 0
    while (match := _TOKEN.match(text, at)) is not None:
        found.append(_token(match))
        at = match.end()
    at = len(text) - len(text[at:].lstrip())
    if at < len(text):
        raise wrong(at + 1, _unreadable(text[at]))
    if len(found) > _MOST_WORDS:
        raise wrong(found[_MOST_WORDS].column, f"a condition has at most {_MOST_WORDS} words")
    return [*found, Token("end", "", at + 1)]


def _token(match: re.Match[str]) -> Token:
    if match["number"] is not None:
        return Token("number", match["number"], match.start("number") + 1)
    if match["text"] is not None:
        return Token("text", match["text"], match.start("text") + 1)
    if match["sign"] is not None:
        return Token("sign", match["sign"], match.start("sign") + 1)
    kind: Literal["sign", "name"] = "sign" if match["name"] in KEYWORDS else "name"
    return Token(kind, match["name"], match.start("name") + 1)


def _unreadable(character: str) -> str:
    if character in "'\"":
        return f"a text begins with {character} and does not end"
    said = {"&": "; say and", "|": "; say or", "!": "; say not"}.get(character, "")
    return f"{character!r} means nothing here{said}"

"""Parse joined conditions, which all queries share, by precedence.

The parser of this small grammar is written by hand, so that errors use the user's words.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from typing import ClassVar, NamedTuple

from stallscope.formatting.plain import plain

from .syntax import BINDING, COMPARISON, MOST, NOT, UNARY_BINDING, WRITTEN, Binary, Node, Unary

_MOST_WORDS = 200
#: The deepest nesting of parentheses, ``not`` and minus signs.
_DEEPEST = 30


class Token(NamedTuple):
    """A word of the text."""

    #: The group of the reader's pattern that matched, or ``end``.
    kind: str
    text: str
    #: Its column, counted from 1.
    column: int
    #: The position of the next token.
    end: int


def wrong(column: int, what: str) -> ValueError:
    """Return an error with its column."""
    return ValueError(f"column {column}: {plain(what)}")


class Reader(ABC):
    """Parses one text."""

    #: Blanks and a token; its group ``sign`` matches the words of the language.
    token: ClassVar[re.Pattern[str]]

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0
        self._words = 0

    @abstractmethod
    def _leaf(self) -> Node:
        """Parse a part that does not start with a word of the language."""

    def _joint(self) -> Token | None:
        """Return the next token if it can join two parts, without consuming it."""
        token = self._next
        return token if token.kind == "sign" and token.text in BINDING else None

    def _joined(self, word: str, left: Node, right: Node) -> Node:
        return Binary(word, left, right, column=left.column)

    def _parts(self, least: int = 0) -> Node:
        """Parse parts joined by words of at least this precedence."""
        left = self._part(least)
        most = MOST
        while (token := self._joint()) and least <= BINDING[token.text] <= most:
            self._pass(token)
            most = BINDING[token.text]
            left = self._joined(WRITTEN.get(token.text, token.text), left, self._parts(most + 1))
            if most == COMPARISON:
                most -= 1
        return left

    def _part(self, least: int) -> Node:
        if token := self._take("("):
            return self._group(token)
        if token := self._take("surely"):
            opened = self._take("(")
            if opened is None:
                raise wrong(self._next.column, "( is missing after surely")
            return Unary("surely", self._group(opened), column=token.column)
        # ``not`` within a sum is an error.
        if token := self._take("-", "not" if least <= NOT else "-"):
            return self._inverse(token)
        return self._leaf()

    def _inverse(self, token: Token) -> Node:
        operand = self._deeper(token, UNARY_BINDING[token.text])
        return Unary(token.text, operand, column=token.column)

    def _group(self, opened: Token) -> Node:
        """Parse the rest of a group after its opening parenthesis."""
        node = self._deeper(opened)
        if not self._take(")"):
            self._miss_parenthesis(opened)
        return node

    def _miss_parenthesis(self, opened: Token) -> None:
        raise wrong(self._next.column, f"the ( of column {opened.column} is not closed")

    def _deeper(self, token: Token, least: int = 0) -> Node:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise wrong(token.column, f"more than {_DEEPEST} levels within each other")
        node = self._parts(least)
        self._depth -= 1
        return node

    @property
    def _next(self) -> Token:
        match = self.token.match(self._text, self._at)
        if match is None:
            return self._without_token()
        kind = match.lastgroup or ""
        return Token(kind, match[kind], match.start(kind) + 1, match.end())

    def _without_token(self) -> Token:
        rest = self._text[self._at :].lstrip()
        column = len(self._text) - len(rest) + 1
        if rest:
            raise wrong(column, _unreadable(rest[0]))
        return Token("end", "", column, len(self._text))

    def _take(self, *signs: str) -> Token | None:
        """Consume the next token if it is one of these signs."""
        token = self._next
        if token.kind != "sign" or token.text not in signs:
            return None
        self._pass(token)
        return token

    def _pass(self, token: Token) -> None:
        """Consume a token."""
        self._words += 1
        if self._words > _MOST_WORDS:
            raise wrong(token.column, f"a condition has at most {_MOST_WORDS} words")
        self._at = token.end


def _unreadable(character: str) -> str:
    if character in "'\"":
        return f"a text begins with {character} and does not end"
    hint = {"&": "; say and", "|": "; say or", "!": "; say not"}.get(character, "")
    return f"{character!r} means nothing here{hint}"

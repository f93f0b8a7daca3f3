"""The syntax tree of a condition and its reader; parsing a printed tree gives the same tree."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

from stallscope.formatting.plain import plain

#: A part of a figure's name without quotes: ``step_ms``, ``rank:3``.
SIMPLE_PART = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?::[A-Za-z0-9_]+)?")
#: Comparisons with exchanged sides.
TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}
COMPARING = (*TURNED, "~")
# Higher binds more tightly.
_OR, _AND, NOT, COMPARISON, _SUM, _PRODUCT, MOST = range(7)
BINDING = {
    "or": _OR,
    "and": _AND,
    **dict.fromkeys((*COMPARING, "="), COMPARISON),
    **dict.fromkeys("+-", _SUM),
    **dict.fromkeys("*/", _PRODUCT),
}
UNARY_BINDING = {"not": NOT, "-": MOST, "surely": MOST}
#: Signs with a second spelling.
WRITTEN = {"=": "=="}

_MOST_WORDS = 200
#: The deepest nesting of parentheses, ``not`` and minus signs.
_DEEPEST = 30


@dataclass(frozen=True)
class Node:
    """A node of a condition."""

    #: Its column in the text, counted from 1.
    column: int = field(default=1, compare=False, kw_only=True)


@dataclass(frozen=True)
class Number(Node):
    """A number as written: 20 with the unit ``%``."""

    value: float
    unit: str

    def __str__(self) -> str:
        whole = self.value.is_integer() and abs(self.value) < 1e15
        return f"{int(self.value) if whole else self.value!r}{self.unit}"


@dataclass(frozen=True)
class TextLiteral(Node):
    text: str

    def __str__(self) -> str:
        return _quoted(self.text)


@dataclass(frozen=True)
class Name(Node):
    """A figure of the run, or of its baseline, as a list of parts.

    Without parts it is ``baseline`` alone: the figure on the other side of the comparison.
    """

    path: tuple[str, ...]
    of_baseline: bool = False

    def __str__(self) -> str:
        parts = ("baseline", *self.path) if self.of_baseline else self.path
        return ".".join(part if SIMPLE_PART.fullmatch(part) else _quoted(part) for part in parts)


@dataclass(frozen=True)
class Unary(Node):
    """``word`` is ``not``, ``-`` or ``surely``.

    ``surely`` holds if its condition holds for the whole of every interval in it.
    """

    word: str
    operand: Node

    def __str__(self) -> str:
        if self.word == "surely":
            return f"surely({self.operand})"
        operand = _within(self.operand, UNARY_BINDING[self.word])
        return f"not {operand}" if self.word == "not" else f"-{operand}"


@dataclass(frozen=True)
class Binary(Node):
    """``word`` is ``and``, ``or``, a sign of ``COMPARING`` or one of + - * /."""

    word: str
    left: Node
    right: Node

    def __str__(self) -> str:
        binding = BINDING[self.word]
        left = _within(self.left, binding + 1 if binding == COMPARISON else binding)
        word = f" {self.word} " if self.word in ("and", "or") else self.word
        return f"{left}{word}{_within(self.right, binding + 1)}"


def leaves_of(node: Node) -> Iterator[Node]:
    """Return the leaves of a tree."""
    if isinstance(node, Unary):
        yield from leaves_of(node.operand)
    elif isinstance(node, Binary):
        yield from leaves_of(node.left)
        yield from leaves_of(node.right)
    else:
        yield node


def _within(node: Node, binding: int) -> str:
    return str(node) if _binding(node) >= binding else f"({node})"


def _binding(node: Node) -> int:
    if isinstance(node, Binary):
        return BINDING[node.word]
    return UNARY_BINDING[node.word] if isinstance(node, Unary) else MOST


def _quoted(text: str) -> str:
    return f'"{text}"' if "'" in text else f"'{text}'"


# -- reader ----------------------------------------------------------------------------------------
#
# Parse joined conditions, which all queries share, by precedence.
#
# The parser of this small grammar is written by hand, so that errors use the user's words.


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

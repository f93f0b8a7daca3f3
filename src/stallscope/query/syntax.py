"""The syntax tree of a condition; parsing a printed tree gives the same tree."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

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

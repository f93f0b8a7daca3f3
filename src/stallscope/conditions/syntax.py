"""What a condition is made of, and how it is written: reading what is written gives the same again."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

#: A part of a figure's name that needs no quotes: ``step_ms``, ``rank:3``.
SIMPLE_PART = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?::[A-Za-z0-9_]+)?")


@dataclass(frozen=True)
class Part:
    """Anything in a condition."""

    #: Where it begins in the text, counted from 1.
    column: int = field(default=1, compare=False, kw_only=True)


@dataclass(frozen=True)
class Number(Part):
    """As written: 20 with the unit ``%``."""

    value: float
    unit: str

    def __str__(self) -> str:
        whole = self.value.is_integer() and abs(self.value) < 1e15
        return f"{int(self.value) if whole else self.value!r}{self.unit}"


@dataclass(frozen=True)
class Text(Part):
    text: str

    def __str__(self) -> str:
        return _quoted(self.text)


@dataclass(frozen=True)
class Name(Part):
    """A figure of the run, or of its baseline, part by part.

    Without any part it is ``baseline`` alone: the figure that it is compared with.
    """

    path: tuple[str, ...]
    of_baseline: bool = False

    def __str__(self) -> str:
        parts = ("baseline", *self.path) if self.of_baseline else self.path
        return ".".join(part if SIMPLE_PART.fullmatch(part) else _quoted(part) for part in parts)


@dataclass(frozen=True)
class Negative(Part):
    operand: Node

    def __str__(self) -> str:
        return f"-{_within(self.operand, _UNARY)}"


@dataclass(frozen=True)
class Arithmetic(Part):
    """``sign`` is one of + - * /."""

    sign: str
    left: Node
    right: Node

    def __str__(self) -> str:
        own = _level(self)
        return f"{_within(self.left, own)}{self.sign}{_within(self.right, own + 1)}"


@dataclass(frozen=True)
class Comparison(Part):
    """``sign`` is one of < <= > >= == !=."""

    sign: str
    left: Node
    right: Node

    def __str__(self) -> str:
        return f"{_within(self.left, _SUM)}{self.sign}{_within(self.right, _SUM)}"


@dataclass(frozen=True)
class Not(Part):
    operand: Node

    def __str__(self) -> str:
        return f"not {_within(self.operand, _NOT)}"


@dataclass(frozen=True)
class Joined(Part):
    """``word`` is ``and`` or ``or``."""

    word: str
    left: Node
    right: Node

    def __str__(self) -> str:
        own = _level(self)
        return f"{_within(self.left, own)} {self.word} {_within(self.right, own + 1)}"


@dataclass(frozen=True)
class Surely(Part):
    """Holds where its condition does for the whole of every interval in it."""

    operand: Node

    def __str__(self) -> str:
        return f"surely({self.operand})"


Node = Number | Text | Name | Negative | Arithmetic | Comparison | Not | Joined | Surely

# What binds more tightly is higher.
_OR, _AND, _NOT, _COMPARISON, _SUM, _PRODUCT, _UNARY, _WHOLE = range(8)


def _level(node: Node) -> int:
    if isinstance(node, Joined):
        return _OR if node.word == "or" else _AND
    if isinstance(node, Not):
        return _NOT
    if isinstance(node, Comparison):
        return _COMPARISON
    if isinstance(node, Arithmetic):
        return _SUM if node.sign in "+-" else _PRODUCT
    return _UNARY if isinstance(node, Negative) else _WHOLE


def _within(node: Node, level: int) -> str:
    return str(node) if _level(node) >= level else f"({node})"


def _quoted(text: str) -> str:
    return f'"{text}"' if "'" in text else f"'{text}'"

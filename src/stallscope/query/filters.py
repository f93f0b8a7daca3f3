"""Conditions on the fields of a list, ``model=resnet50 (ranks>=8 or age<7d)``.

    condition = field ("<" | "<=" | ">" | ">=" | "==" | "=" | "!=" | "~") value | "(" either ")"

A value is a quoted text, or everything up to the next blank. A search also has words, and ignores an
incomplete condition.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from math import isfinite
from typing import Any, NamedTuple

from stallscope.formatting.plain import plain

from .field_kinds import UNITS, Kind, find, nearest, never
from .syntax import (
    BINDING,
    COMPARING,
    COMPARISON,
    SIMPLE_PART,
    TURNED,
    WRITTEN,
    Binary,
    Name,
    Node,
    Number,
    Reader,
    TextLiteral,
    Token,
    Unary,
    wrong,
)

_MOST_CONDITIONS = 50
_START = re.compile(r"\s*(?P<field>\w[\w.:]*)\s*(?P<sign>!=|>=|<=|==|=|<|>|~)\s*")
_QUOTED_VALUE = re.compile(r"""("[^"]*"|'[^']*')(?=[\s)]|$)""")
_QUOTED_WORD = re.compile(r""""([^"]*)(?:"|$)|'([^']*)(?:'|$)""")
#: The longest condition, in characters.
_LONGEST = 1000
_TEXT = r"'[^']*'|\"[^\"]*\""
_PART = rf"(?:{SIMPLE_PART.pattern}|{_TEXT})"

_AMOUNT = re.compile(r"([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)([%A-Za-z]*)")


@dataclass(frozen=True)
class Test(Node):
    """A comparison of a field with a value."""

    field: Field
    sign: str
    value: Any

    def holds(self, value: Any) -> bool:
        """Return whether the comparison holds for a value. Only ``!=`` holds for unknown ones."""
        if self.sign == "~":
            return self.value in fold(value)
        if value is None:
            return self.sign == "!="
        return COMPARED[self.sign](value, self.value)


@dataclass(frozen=True)
class Word(Node):
    """A folded word to find in all texts."""

    text: str
    #: What may be meant as the field of a condition, as in ``lr=0.1``; no list has such a field.
    field_name: str = field(default="", compare=False)


_UNFINISHED = Word("")


def parse_filter(text: str, fields: Mapping[str, Field], *, words: bool = False) -> Node | None:
    """Parse a filter; None if it is empty. With ``words`` it is a search.

    Raises:
        ValueError: if it cannot be read; the message gives the error and its column.
    """
    if not text.strip():
        return None
    return (_Search if words else _Filter)(text, fields).read()


class _Filter(Reader):
    token = re.compile(r"\s*(?:(?P<sign>[()]|(?:and|or|not)(?=[\s()]|$))|(?P<word>\S+))")

    def __init__(self, text: str, fields: Mapping[str, Field]) -> None:
        super().__init__(text)
        self._fields = fields
        self._conditions = 0

    def read(self) -> Node:
        return self._parts()

    def _joint(self) -> Token | None:
        token = self._next
        if token.kind == "end" or self._closes(token):
            return None
        # A blank means ``and``.
        return super()._joint() or token._replace(text="and", end=self._at)

    def _closes(self, token: Token) -> bool:
        return self._depth > 0 and token.kind == "sign" and token.text == ")"

    def _leaf(self) -> Node:
        token = self._next
        column = token.column
        start = _START.match(self._text, self._at)
        value = None if start is None else self._value(start.end())
        if token.kind == "end":
            raise wrong(column, "the text ends where a condition is missing")
        if start is None or value is None:
            rest = self._text[column - 1 :].strip()
            raise wrong(
                column,
                f"{rest!r} is not a condition: give field, operator and value, such as "
                "'ranks>=8 verdict=input'",
            )
        self._conditions += 1
        if self._conditions > _MOST_CONDITIONS:
            raise wrong(column, f"more than {_MOST_CONDITIONS} conditions")
        text, end = value
        self._pass(token._replace(end=end))
        return self._compared(start["field"], start["sign"], text)

    def _value(self, at: int) -> tuple[str, int] | None:
        """Return the value that starts here, and its end."""
        quoted = _QUOTED_VALUE.match(self._text, at)
        if quoted is not None:
            return quoted[1][1:-1], quoted.end()
        end = self._word_end(at)
        return None if end == at or self._text[at] in "\"'<>=!~" else (self._text[at:end], end)

    def _word_end(self, at: int) -> int:
        """Return the end of a word: the next blank, or the parenthesis that closes a group."""
        opened = 0
        while at < len(self._text) and not self._text[at].isspace():
            opened += {"(": 1, ")": -1}.get(self._text[at], 0)
            if opened < 0 and self._depth:
                break
            at += 1
        return at

    def _compared(self, name: str, sign: str, text: str) -> Test:
        field = find(self._fields, name)
        if field is None:
            raise ValueError(plain(unknown_field(name, self._fields)))
        kind = field.kind
        prefix = plain(f"{name}{sign}{text}: ")
        sign = WRITTEN.get(sign, sign)
        if sign == "~" and sign not in kind.signs:
            raise ValueError(f"{prefix}~ looks into words, and {name} is none")
        try:
            value = kind.read(text)
        except (ValueError, LookupError, OverflowError):
            raise ValueError(f"{prefix}{name} takes {kind.example}") from None
        if kind.choices and sign != "~" and value not in kind.choices:
            raise ValueError(plain(never(name, text, kind.choices)))
        if sign not in kind.signs:
            raise ValueError(prefix + kind.refusal.format(field=name, value=plain(text)))
        if kind.is_reversed:
            sign = TURNED[sign]
        return Test(field, sign, fold(value) if sign == "~" else value)


class _Search(_Filter):
    """Parses a search while the user types it."""

    def _joined(self, word: str, left: Node, right: Node) -> Node:
        finished = [node for node in (left, right) if node is not _UNFINISHED]
        return super()._joined(word, left, right) if len(finished) == 2 else (*finished, left)[0]

    def _inverse(self, token: Token) -> Node:
        node = super()._inverse(token)
        is_unfinished = isinstance(node, Unary) and node.operand is _UNFINISHED
        return _UNFINISHED if is_unfinished else node

    def _miss_parenthesis(self, opened: Token) -> None:
        """Treat the end of the text as the missing parenthesis."""

    def _leaf(self) -> Node:
        token = self._next
        if token.kind == "end" or self._closes(token):
            return _UNFINISHED
        start = _START.match(self._text, self._at)
        field = None if start is None else find(self._fields, start["field"])
        if start is None or field is None:
            return self._word(token)
        value = self._value(start.end())
        if value is None or self._may_go_on(field, *value):
            self._pass(token._replace(end=start.end() if value is None else value[1]))
            return _UNFINISHED
        return super()._leaf()

    def _may_go_on(self, field: Field, text: str, end: int) -> bool:
        """Whether the user may be typing the rest of one of the field's words."""
        is_last = not self._text[end:].strip()
        choices = field.kind.choices
        return is_last and text not in choices and any(word.startswith(text) for word in choices)

    def _word(self, token: Token) -> Word:
        at = token.column - 1
        quoted = _QUOTED_WORD.match(self._text, at)
        end = self._word_end(at) if quoted is None else quoted.end()
        self._pass(token._replace(end=end))
        text = self._text[at:end] if quoted is None else quoted[1] or quoted[2] or ""
        # lr=0.1 is part of many runs' names.
        start = None if quoted is not None else _START.match(self._text, at)
        is_condition = start is not None and self._value(start.end()) is not None
        name = start["field"] if start is not None and is_condition else ""
        return Word(fold(text), name, column=token.column)


def unknown_field(name: str, fields: Mapping[str, Field]) -> str:
    """Return an error about an unknown field, with the closest known one."""
    near = nearest(name, fields)
    hint = f"; did you mean {near}?" if near else ""
    return f"there is no field {name!r}; there are {', '.join(fields)}{hint}"


# -- evaluation ------------------------------------------------------------------------------------
#
# Logic in which a condition may be undecided.


class State(IntEnum):
    """The state of a condition, ordered so that ``and`` is the minimum and ``or`` the maximum."""

    NO = 0
    #: Within ``surely``: an interval includes the limit.
    UNSURE = 1
    #: A figure is missing.
    UNKNOWN = 2
    YES = 3


class Evaluation(NamedTuple):
    """A state and the sentences that explain it."""

    state: State
    why: tuple[str, ...] = ()


COMPARED: Mapping[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}


#: Evaluations without sentences, for lists.
YES = Evaluation(State.YES)


NO = Evaluation(State.NO)


_DECIDING = {"and": NO, "or": YES}


_INVERSE = {State.YES: State.NO, State.NO: State.YES}


def evaluate(
    node: Node, compare: Callable[[Any, bool], Evaluation], surely: bool = False
) -> Evaluation:
    """Return whether a condition holds.

    ``compare`` decides single comparisons; its flag is True within ``surely``.
    """
    if isinstance(node, Unary) and node.word == "not":
        inner = evaluate(node.operand, compare, surely)
        return inner._replace(state=_INVERSE.get(inner.state, inner.state))
    if isinstance(node, Unary):
        inner = evaluate(node.operand, compare, True)
        # Nested ones mean the same.
        is_no = inner.state is State.UNSURE and not surely
        return inner._replace(state=State.NO) if is_no else inner
    if isinstance(node, Binary) and node.word in ("and", "or"):
        left = evaluate(node.left, compare, surely)
        if left is _DECIDING[node.word]:
            return left
        right = evaluate(node.right, compare, surely)
        # Only the decisive parts explain the result.
        if left.state is right.state:
            return Evaluation(left.state, left.why + right.why)
        return left if (left.state < right.state) == (node.word == "and") else right
    return compare(node, surely)


# -- expressions -----------------------------------------------------------------------------------
#
# Conditions on computed figures, ``step_ms.p99>2*step_ms.p50``.


def parse_expression(text: str) -> Node:
    """Parse a condition; its names and units are not validated yet.

    Raises:
        ValueError: if it cannot be read; the message gives the error and its column.
    """
    if len(text) > _LONGEST:
        raise ValueError(
            f"a condition has at most {_LONGEST:,} characters, and this one {len(text):,}"
        )
    return _Expression(text).read()


class _Expression(Reader):
    token = re.compile(
        rf"""\s*(?:(?P<number>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"""
        rf"""|(?P<sign>(?:and|or|not|surely)(?![A-Za-z0-9_:.])|==|!=|>=|<=|[-<>=~()+*/%])"""
        rf"""|(?P<name>{SIMPLE_PART.pattern}(?:\.{_PART})*)|(?P<text>{_TEXT}))"""
    )

    def read(self) -> Node:
        node, token = self._parts(), self._next
        if token.kind == "end":
            return node
        if BINDING.get(token.text) == COMPARISON:
            raise wrong(token.column, "a second comparison: join the two with and")
        if token.text == ")":
            raise wrong(token.column, "this ) closes nothing")
        raise wrong(token.column, f"{token.text!r} joins nothing: join conditions with and, or")

    def _leaf(self) -> Node:
        token = self._next
        if token.kind in ("end", "sign"):
            problem = f"there is {token.text!r}" if token.text else "the text ends"
            raise wrong(token.column, f"{problem} where a figure or a number is missing")
        self._pass(token)
        if token.kind == "number":
            return self._number(token)
        parts = re.findall(_PART, token.text)
        path = tuple(part[1:-1] if part[0] in "'\"" else part for part in parts)
        if token.kind == "text":
            return TextLiteral(path[0], column=token.column)
        of_baseline = path[0] == "baseline"
        return Name(path[of_baseline:], of_baseline, column=token.column)

    def _number(self, token: Token) -> Number:
        value, unit = float(token.text), self._next
        known = unit.text if unit.text in UNITS else ""
        if known:
            self._pass(unit)
        if not isfinite(value * UNITS[known][1]):
            raise wrong(token.column, f"{token.text} is too large a number")
        return Number(value, known, column=token.column)


# -- fields ----------------------------------------------------------------------------------------
#
# Fields of a list: how their values are parsed and compared.


@dataclass(frozen=True)
class FieldKind:
    """A kind of field."""

    #: Parses a text; raises ValueError, LookupError or OverflowError if it is not such a value.
    read: Callable[[str], Any]
    #: An example of a value.
    example: str
    signs: tuple[str, ...] = tuple(sign for sign in COMPARING if sign != "~")
    #: Why other signs are not allowed; ``{field}`` and ``{value}`` are filled in.
    refusal: str = ""
    #: Whether the order of stored values is reversed.
    is_reversed: bool = False
    #: All words that the field may be; empty for any.
    choices: tuple[str, ...] = ()
    #: Writes a value for people.
    text: Callable[[Any], str] = str

    @property
    def is_text(self) -> bool:
        """Whether values are words, of which a filter may look for a part."""
        return "~" in self.signs


@dataclass(frozen=True)
class Field:
    """A field: its kind, its value in an object of the list, and the SQL of its value in a row."""

    kind: FieldKind
    read: Callable[[Any], Any]
    column: str
    #: Whether only an analysis of the run tells the value.
    is_of_analysis: bool = False


def amount(text: str, unit: Kind = Kind.BARE, *, needs_unit: bool = False) -> float:
    """Parse a plain number, or an amount of a kind: times in milliseconds, sizes in bytes.

    Raises:
        ValueError, LookupError: if it is not an amount.
    """
    match = _AMOUNT.fullmatch(text)
    if match is None:
        raise ValueError("no amount")
    kind, factor, divisor = UNITS[match[2]]
    value = float(match[1]) * factor / divisor
    if kind not in (unit, unit if needs_unit else Kind.BARE) or not isfinite(value):
        raise ValueError("another kind, or too large")
    return value


def fold(value: object) -> str:
    """Return a text in a form that ignores case."""
    return "" if value is None else str(value).casefold()

"""Conditions on the fields of a list, ``model=resnet50 (ranks>=8 or age<7d)``.

A value is a quoted text, or everything up to the next blank; blanks between conditions mean ``and``.
A search also has words, and ignores an incomplete condition.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any

from stallscope.formatting.plain import plain

from .language import (
    COMPARED,
    NUMBER,
    SIGN,
    TURNED,
    UNITS,
    And,
    Comparison,
    Kind,
    Node,
    Not,
    Or,
    Parser,
    find,
    fold,
    nearest,
    never,
    sign_of,
    wrong,
)

_MOST_CONDITIONS = 50
_START = re.compile(rf"\s*(?P<field>\w[\w.:]*)\s*{SIGN}\s*")
_QUOTED_VALUE = re.compile(r"""("[^"]*"|'[^']*')(?=[\s)]|$)""")
_QUOTED_WORD = re.compile(r""""([^"]*)(?:"|$)|'([^']*)(?:'|$)""")
_AMOUNT = re.compile(rf"({NUMBER})([%A-Za-z]*)")


@dataclass(frozen=True)
class FieldKind:
    """A kind of field."""

    #: Parses a text; raises ValueError, LookupError or OverflowError if it is not such a value.
    read: Callable[[str], Any]
    #: An example of a value.
    example: str
    signs: tuple[str, ...] = tuple(COMPARED)
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


@dataclass(frozen=True)
class Word(Node):
    """A folded word to find in all texts."""

    text: str
    #: What may be meant as the field of a condition, as in ``lr=0.1``; no list has such a field.
    field_name: str = ""


def holds(test: Comparison, value: Any) -> bool:
    """Return whether a comparison holds for a field's value. Only ``!=`` holds for unknown ones."""
    if test.sign == "~":
        return test.right in fold(value)
    if value is None:
        return test.sign == "!="
    return COMPARED[test.sign](value, test.right)


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


def unknown_field(name: str, fields: Mapping[str, Field]) -> str:
    """Return an error about an unknown field, with the closest known one."""
    near = nearest(name, fields)
    hint = f"; did you mean {near}?" if near else ""
    return f"there is no field {name!r}; there are {', '.join(fields)}{hint}"


def parse_filter(text: str, fields: Mapping[str, Field], *, words: bool = False) -> Node | None:
    """Parse a filter; None if it is empty. With ``words`` it is a search.

    Raises:
        ValueError: if it cannot be read; the message gives the error and its column.
    """
    if not text.strip():
        return None
    return (_Search if words else _Filter)(text, fields).read()


class _Filter(Parser):
    blanks_join = True

    def __init__(self, text: str, fields: Mapping[str, Field]) -> None:
        super().__init__(text)
        self._fields = fields
        self._conditions = 0

    def read(self) -> Node | None:
        return self._condition()

    def _comparison(self) -> Node:
        column = self._column
        start = _START.match(self._text, self._at)
        value = None if start is None else self._value(start.end())
        if column > len(self._text):
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
        self._pass(end)
        return self._compared(start, text)

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

    def _compared(self, start: re.Match[str], text: str) -> Comparison:
        name, sign = start["field"], sign_of(start)
        field = find(self._fields, name)
        if field is None:
            raise ValueError(plain(unknown_field(name, self._fields)))
        kind = field.kind
        prefix = plain(f"{name}{start['sign']}{text}: ")
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
        return Comparison(field, sign, fold(value) if sign == "~" else value)


#: A condition that the user is still typing.
_UNFINISHED = Word("")


class _Search(_Filter):
    """Parses a search while the user types it."""

    is_unfinished = True

    def read(self) -> Node | None:
        return _finished(self._condition())

    def _comparison(self) -> Node:
        if self._ends:
            return _UNFINISHED
        start = _START.match(self._text, self._at)
        field = None if start is None else find(self._fields, start["field"])
        if start is None or field is None:
            return self._text_word()
        value = self._value(start.end())
        if value is None or self._may_go_on(field, *value):
            self._pass(start.end() if value is None else value[1])
            return _UNFINISHED
        return super()._comparison()

    def _may_go_on(self, field: Field, text: str, end: int) -> bool:
        """Whether the user may be typing the rest of one of the field's words."""
        is_last = not self._text[end:].strip()
        choices = field.kind.choices
        return is_last and text not in choices and any(word.startswith(text) for word in choices)

    def _text_word(self) -> Word:
        at = self._column - 1
        start, quoted = _START.match(self._text, at), _QUOTED_WORD.match(self._text, at)
        if quoted is not None:
            self._pass(quoted.end())
            return Word(fold(quoted[1] or quoted[2] or ""))
        end = self._word_end(at)
        # lr=0.1 is part of many runs' names.
        is_condition = start is not None and self._value(start.end()) is not None
        self._pass(end)
        name = start["field"] if start is not None and is_condition else ""
        return Word(fold(self._text[at:end]), name)


def _finished(node: Node) -> Node | None:
    """Return the finished conditions of a search; None if all are unfinished."""
    if isinstance(node, Not):
        inner = _finished(node.condition)
        return None if inner is None else Not(inner)
    if isinstance(node, (And, Or)):
        left, right = _finished(node.left), _finished(node.right)
        return type(node)(left, right) if left and right else left or right
    return None if node is _UNFINISHED else node

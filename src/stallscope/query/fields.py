"""Fields of a list: how their values are parsed and compared."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite
from typing import Any

from .kinds import UNITS, Kind
from .syntax import COMPARING

_AMOUNT = re.compile(r"([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)([%A-Za-z]*)")


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

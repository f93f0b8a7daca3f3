"""Fields of a list: how their values are read from text and how they may be compared."""

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

    #: Raises ValueError, LookupError or OverflowError where a text is no such value.
    read: Callable[[str], Any]
    #: What a value looks like.
    example: str
    signs: tuple[str, ...] = tuple(sign for sign in COMPARING if sign != "~")
    #: Why there are no other signs; ``{field}`` and ``{value}`` are filled in.
    refusal: str = ""
    #: Whether a larger value, as text, is a smaller one as it is stored.
    is_reversed: bool = False


@dataclass(frozen=True)
class Field:
    """A field: its kind, its value in an object of the list, and the SQL of its value in a row."""

    kind: FieldKind
    read: Callable[[Any], Any]
    column: str


def amount(text: str, unit: Kind = Kind.BARE, *, needs_unit: bool = False) -> float:
    """Return a plain number, or an amount of a kind: times in milliseconds, sizes in bytes.

    Raises:
        ValueError, LookupError: if it is none.
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
    """Return a text for comparing without regard to case."""
    return "" if value is None else str(value).casefold()

"""Kinds of figures and their units: which kinds can be added, multiplied and divided."""

from __future__ import annotations

from enum import Enum


class Kind(Enum):
    """A kind of figure; the value is its name in sentences."""

    #: A number without a unit takes the other side's unit.
    BARE = "a plain number"
    NUMBER = "a number"
    SHARE = "a share"
    #: Times are stored in milliseconds; a plain number compared with seconds means seconds.
    MS = "a time"
    S = "a time in seconds"
    RATE = "a rate"
    SIZE = "a size"
    TEXT = "a word"
    TRUTH = "a condition"


#: Units, with the factor and the divisor that convert numbers.
UNITS: dict[str, tuple[Kind, int, int]] = {
    "": (Kind.BARE, 1, 1),
    "%": (Kind.SHARE, 1, 100),
    "us": (Kind.MS, 1, 1000),
    "ms": (Kind.MS, 1, 1),
    "s": (Kind.MS, 1000, 1),
    "min": (Kind.MS, 60_000, 1),
    "h": (Kind.MS, 3_600_000, 1),
    "d": (Kind.MS, 24 * 3_600_000, 1),
    "w": (Kind.MS, 7 * 24 * 3_600_000, 1),
    "B": (Kind.SIZE, 1, 1),
    "kB": (Kind.SIZE, 10**3, 1),
    "MB": (Kind.SIZE, 10**6, 1),
    "GB": (Kind.SIZE, 10**9, 1),
    "TB": (Kind.SIZE, 10**12, 1),
    "KiB": (Kind.SIZE, 2**10, 1),
    "MiB": (Kind.SIZE, 2**20, 1),
    "GiB": (Kind.SIZE, 2**30, 1),
    "TiB": (Kind.SIZE, 2**40, 1),
}

_PURE = frozenset({Kind.BARE, Kind.NUMBER, Kind.SHARE})
_TIMES = frozenset({Kind.MS, Kind.S})
_AMOUNTS = _PURE | _TIMES | {Kind.RATE, Kind.SIZE}


def same(one: Kind, other: Kind) -> Kind | None:
    """Return the common kind of a sum or comparison; None if they do not match."""
    if one not in _AMOUNTS or other not in _AMOUNTS:
        return None
    if one is other or other is Kind.BARE:
        return one
    if one is Kind.BARE:
        return other
    if {one, other} <= _TIMES:
        return Kind.MS
    return Kind.SHARE if {one, other} <= _PURE else None


def product(one: Kind, other: Kind) -> Kind | None:
    """Return the kind of a product; None if it has no meaning."""
    if one not in _AMOUNTS or other not in _AMOUNTS:
        return None
    if one in _PURE and other in _PURE:
        return one if other is Kind.BARE else other if one is Kind.BARE else Kind.NUMBER
    if one in _PURE:
        return other
    return one if other in _PURE else None


def quotient(one: Kind, other: Kind) -> Kind | None:
    """Return the kind of a quotient; None if it has no meaning."""
    if one not in _AMOUNTS or other not in _AMOUNTS:
        return None
    if other is Kind.BARE:
        return one
    if one in _PURE:
        return Kind.NUMBER if other in _PURE else None
    return one if other in _PURE else Kind.NUMBER if same(one, other) else None

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


def same(left: Kind, right: Kind) -> Kind | None:
    """Return the common kind of a sum or comparison; None if they do not match."""
    if left not in _AMOUNTS or right not in _AMOUNTS:
        return None
    if left is right or right is Kind.BARE:
        return left
    if left is Kind.BARE:
        return right
    if {left, right} <= _TIMES:
        return Kind.MS
    return Kind.SHARE if {left, right} <= _PURE else None


def product(left: Kind, right: Kind) -> Kind | None:
    """Return the kind of a product; None if it has no meaning."""
    if left not in _AMOUNTS or right not in _AMOUNTS:
        return None
    if left in _PURE and right in _PURE:
        return left if right is Kind.BARE else right if left is Kind.BARE else Kind.NUMBER
    if left in _PURE:
        return right
    return left if right in _PURE else None


def quotient(dividend: Kind, divisor: Kind) -> Kind | None:
    """Return the kind of a quotient; None if it has no meaning."""
    if dividend not in _AMOUNTS or divisor not in _AMOUNTS:
        return None
    if divisor is Kind.BARE:
        return dividend
    if dividend in _PURE:
        return Kind.NUMBER if divisor in _PURE else None
    return dividend if divisor in _PURE else Kind.NUMBER if same(dividend, divisor) else None

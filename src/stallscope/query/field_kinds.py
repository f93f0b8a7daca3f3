"""Kinds of figures and their units, and the names that fields share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from enum import Enum
from typing import TypeVar

from stallscope.words import ENTRIES

T = TypeVar("T")
#: The report's names by the list's.
SYNONYMS: dict[str, str] = {
    "verdict": "bottleneck",
    "fault": "bottleneck.fault",
    "cause": "bottleneck.cause",
    "ranks": "size",
    "steps": "steps.total",
    "step_ms": "step_ms.mean",
    **{part: f"{part}.share" for part in ENTRIES},
}
_OTHER_NAME = SYNONYMS | {report: listed for listed, report in SYNONYMS.items()}


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


# -- names -----------------------------------------------------------------------------------------
#
# Names of figures and fields; some have two, one in the report and one in the list of runs.


def find(table: Mapping[str, T], name: str) -> T | None:
    """Find the entry of a name or its synonym; None if there is neither."""
    return table.get(name, table.get(_OTHER_NAME.get(name, "")))


def nearest(written: str, names: Iterable[str]) -> str:
    """Return the closest known name; empty if none is close.

    It starts with the given text, or it or its first part has a similar spelling.
    """
    names = list(names)
    within = [name for name in names if name.startswith(f"{written}.")]
    alike = get_close_matches(written, [*names, *_OTHER_NAME], n=1)
    return next(iter(within or alike or _beginning_like(written, names)), "")


def never(name: str, word: str, choices: Sequence[str]) -> str:
    """Return an error about a word that a figure or field never is, with the closest one."""
    near = get_close_matches(word, choices, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else f": it is one of {', '.join(choices)}"
    return f"{name} is never {word!r}{hint}"


def _beginning_like(written: str, names: list[str]) -> list[str]:
    firsts = [name.partition(".")[0] for name in names]
    near = get_close_matches(written.partition(".")[0], firsts, n=1)
    return [name for name in names if name.partition(".")[0] in near]

"""Compute with amounts and their 95 % intervals.

Errors of figures of different runs are independent and add up as squares. Errors of figures of one run
may be correlated in any way and add up linearly, which is the worst case. Products and quotients are
approximated to first order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from stallscope.arrays.stats import Mean
from stallscope.query import kinds
from stallscope.query.kinds import Kind

#: Why a figure may lack its interval.
TOO_FEW_STEPS = "too few independent steps"


@dataclass(frozen=True)
class Missing:
    """A missing value and its reason, in a sentence."""

    why: str


@dataclass(frozen=True)
class Quantity:
    """An amount; times in milliseconds, shares as fractions."""

    value: float
    kind: Kind
    #: The distances of the interval's ends below and above; (0, 0) is exact, None is no interval.
    spread: tuple[float, float] | None = (0.0, 0.0)
    #: The sources of its uncertainty: ``run`` or ``baseline``.
    of: frozenset[str] = frozenset()
    #: Why there is no interval; empty otherwise.
    without: str = ""

    @property
    def ci95(self) -> tuple[float, float] | None:
        """Both ends of the interval; None without an interval, or for an exact amount."""
        if self.spread in (None, (0.0, 0.0)):
            return None
        below, above = self.spread or (0.0, 0.0)
        return self.value - below, self.value + above

    def taken_as(self, kind: Kind) -> Quantity:
        """Return the amount with the kind of another one: a plain number takes its unit."""
        if self.kind is not Kind.BARE or kind is not Kind.S:
            return Quantity(self.value, kind, self.spread, self.of, self.without)
        return _made(self.value * 1e3, kind, _scaled(self.spread, 1e3), (self,))


def estimate(mean: Mean, kind: Kind, source: str, without: str = TOO_FEW_STEPS) -> Quantity:
    """Convert an estimated mean to an amount."""
    if mean.ci95 is None or not all(map(math.isfinite, mean.ci95)):
        return Quantity(mean.value, kind, None, frozenset({source}), without)
    spread = (mean.value - mean.ci95[0], mean.ci95[1] - mean.value)
    return Quantity(mean.value, kind, spread, frozenset({source}))


def negative(one: Quantity) -> Quantity:
    turned = None if one.spread is None else (one.spread[1], one.spread[0])
    return _made(-one.value, one.kind, turned, (one,))


def plus(one: Quantity, other: Quantity) -> Quantity:
    kind = kinds.same(one.kind, other.kind) or one.kind
    one, other = one.taken_as(kind), other.taken_as(kind)
    spread = _joined(one.spread, other.spread, one, other)
    return _made(one.value + other.value, kind, spread, (one, other))


def minus(one: Quantity, other: Quantity) -> Quantity:
    return plus(one, negative(other))


def times(one: Quantity, other: Quantity) -> Quantity:
    kind = kinds.product(one.kind, other.kind) or one.kind
    spread = _joined(_scaled(one.spread, other.value), _scaled(other.spread, one.value), one, other)
    return _made(one.value * other.value, kind, spread, (one, other))


def over(one: Quantity, other: Quantity) -> Quantity | None:
    """Divide; None if the divisor is zero."""
    if other.value == 0:
        return None
    kind = kinds.quotient(one.kind, other.kind) or one.kind
    value = one.value / other.value
    ends = other.ci95
    if ends is not None and ends[0] <= 0 <= ends[1]:
        why = "a divisor's interval includes 0"
        return Quantity(value, kind, None, one.of | other.of, why)
    spread = _joined(
        _scaled(one.spread, 1 / other.value),
        _scaled(other.spread, -value / other.value),
        one,
        other,
    )
    return _made(value, kind, spread, (one, other))


def is_finite(one: Quantity) -> bool:
    return math.isfinite(one.value) and all(map(math.isfinite, one.spread or ()))


def _made(
    value: float,
    kind: Kind,
    spread: tuple[float, float] | None,
    parts: tuple[Quantity, ...],
) -> Quantity:
    of = frozenset().union(*(part.of for part in parts))
    without = next((part.without for part in parts if part.without), "")
    return Quantity(value, kind, spread, of, without)


def _scaled(spread: tuple[float, float] | None, factor: float) -> tuple[float, float] | None:
    if spread is None:
        return None
    below, above = (spread[0] * abs(factor), spread[1] * abs(factor))
    return (below, above) if factor >= 0 else (above, below)


def _joined(
    one: tuple[float, float] | None,
    other: tuple[float, float] | None,
    first: Quantity,
    second: Quantity,
) -> tuple[float, float] | None:
    if one is None or other is None:
        return None
    if first.of.isdisjoint(second.of):
        return math.hypot(one[0], other[0]), math.hypot(one[1], other[1])
    return one[0] + other[0], one[1] + other[1]

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
        return _quantity(self.value * 1e3, kind, _scaled(self.spread, 1e3), (self,))


def estimate(mean: Mean, kind: Kind, source: str, without: str = TOO_FEW_STEPS) -> Quantity:
    """Convert an estimated mean to an amount."""
    if mean.ci95 is None or not all(map(math.isfinite, mean.ci95)):
        return Quantity(mean.value, kind, None, frozenset({source}), without)
    spread = (mean.value - mean.ci95[0], mean.ci95[1] - mean.value)
    return Quantity(mean.value, kind, spread, frozenset({source}))


def negative(quantity: Quantity) -> Quantity:
    turned = None if quantity.spread is None else (quantity.spread[1], quantity.spread[0])
    return _quantity(-quantity.value, quantity.kind, turned, (quantity,))


def plus(left: Quantity, right: Quantity) -> Quantity:
    kind = kinds.same(left.kind, right.kind) or left.kind
    left, right = left.taken_as(kind), right.taken_as(kind)
    spread = _joined(left.spread, right.spread, left, right)
    return _quantity(left.value + right.value, kind, spread, (left, right))


def minus(left: Quantity, right: Quantity) -> Quantity:
    return plus(left, negative(right))


def times(left: Quantity, right: Quantity) -> Quantity:
    kind = kinds.product(left.kind, right.kind) or left.kind
    spread = _joined(
        _scaled(left.spread, right.value), _scaled(right.spread, left.value), left, right
    )
    return _quantity(left.value * right.value, kind, spread, (left, right))


def over(dividend: Quantity, divisor: Quantity) -> Quantity | None:
    """Divide; None if the divisor is zero."""
    if divisor.value == 0:
        return None
    kind = kinds.quotient(dividend.kind, divisor.kind) or dividend.kind
    value = dividend.value / divisor.value
    ends = divisor.ci95
    if ends is not None and ends[0] <= 0 <= ends[1]:
        why = "a divisor's interval includes 0"
        return Quantity(value, kind, None, dividend.of | divisor.of, why)
    spread = _joined(
        _scaled(dividend.spread, 1 / divisor.value),
        _scaled(divisor.spread, -value / divisor.value),
        dividend,
        divisor,
    )
    return _quantity(value, kind, spread, (dividend, divisor))


def is_finite(quantity: Quantity) -> bool:
    return math.isfinite(quantity.value) and all(map(math.isfinite, quantity.spread or ()))


def _quantity(
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
    first_spread: tuple[float, float] | None,
    second_spread: tuple[float, float] | None,
    first: Quantity,
    second: Quantity,
) -> tuple[float, float] | None:
    if first_spread is None or second_spread is None:
        return None
    if first.of.isdisjoint(second.of):
        below = math.hypot(first_spread[0], second_spread[0])
        return below, math.hypot(first_spread[1], second_spread[1])
    return first_spread[0] + second_spread[0], first_spread[1] + second_spread[1]

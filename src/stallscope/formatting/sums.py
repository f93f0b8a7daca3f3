"""Round the parts of a sum to the digits of the total, so that they add up as printed."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from stallscope.arrays.types import Floats, Ints

from .numbers import Interval, Scale, between, decimals_of, fixed, scale_for, with_half

# Floating-point numbers that differ by less are equal.
_SAME = 1e-6


@dataclass(frozen=True)
class SumColumn:
    """Parts and their total in one unit, rounded to the same digits."""

    scale: Scale
    decimals: int
    parts: tuple[float, ...]
    total: float

    @classmethod
    def of(
        cls,
        parts: Sequence[float],
        total: float,
        ci95: Interval | None = None,
        unit: str = "ms",
        finer: int = 0,
    ) -> SumColumn:
        """Round values so that the parts add up to the total.

        Args:
            parts: values in ``unit``.
            total: their sum.
            ci95: the total's interval; its half width determines the digits.
            unit: of all values; the column has a readable unit for the total.
            finer: the number of additional digits, where small parts matter.
        """
        scale = scale_for(total, unit)
        inside = None if ci95 is None else (ci95[0] * scale.factor, ci95[1] * scale.factor)
        decimals = decimals_of(total * scale.factor, inside) + finer
        return cls.like(scale, decimals, parts)

    @classmethod
    def like(cls, scale: Scale, decimals: int, parts: Sequence[float]) -> SumColumn:
        """Round other values to the unit and digits of another column."""
        rounded = _adding_up(np.array(parts, np.float64) * scale.factor, decimals).tolist()
        return cls(scale, decimals, tuple(rounded), round(sum(rounded), decimals))

    def of_rounded(self, rounded: Sequence[float]) -> SumColumn:
        """Make a column of parts that have this unit and these digits already."""
        parts = tuple(round(part, self.decimals) for part in rounded)
        return SumColumn(self.scale, self.decimals, parts, round(sum(parts), self.decimals))

    def with_parts(self, rounded: Sequence[float]) -> SumColumn:
        """Split the same total into other parts, which add up to it and have these digits already."""
        return SumColumn(self.scale, self.decimals, tuple(rounded), self.total)

    def in_same_digits(self, parts: Sequence[float]) -> SumColumn:
        """Round the parts of another sum to this unit and these digits."""
        return self.like(self.scale, self.decimals, parts)

    def rows_in_same_digits(self, rows: Floats) -> Floats:
        """Round the parts of many other sums, a row each, to this unit and these digits."""
        return _adding_up(rows * self.scale.factor, self.decimals)

    def with_shares(
        self, parts: Sequence[float], shares: Sequence[float]
    ) -> tuple[SumColumn, SumColumn]:
        """Round parts, and a share of each of the first ones, to this unit and digits.

        As printed, the parts add up, the shares add up, and so do the parts without their shares. Every
        figure is one of the two nearest ones.
        """
        factor = self.scale.factor * 10.0**self.decimals
        parts_up, shares_up = _split_and_rounded(
            np.array(parts) * factor, np.array(shares) * factor
        )
        columns = ([number / 10.0**self.decimals for number in up] for up in (parts_up, shares_up))
        rounded, shared = map(self.of_rounded, columns)
        return rounded, shared

    def less(self, column: SumColumn) -> SumColumn:
        """Subtract another column, as printed."""
        pairs = zip(self.parts, column.parts, strict=True)
        return self.of_rounded([left - right for left, right in pairs])

    def text(self, value: float, ci95: Interval | None = None) -> str:
        """Write a part or the total; its interval is in the unit of the values."""
        if ci95 is None:
            return fixed(value, self.decimals)
        half = (ci95[1] - ci95[0]) / 2 * self.scale.factor
        return with_half(value, half, self.decimals)

    def amount(self, value: float, ci95: Interval | None = None) -> str:
        """Write a part or the total with its unit."""
        return f"{self.text(value, ci95)}{self._unit}"

    def ends(self, value: float, ci95: Interval) -> str:
        """Write the interval of a part with its unit: 37.6–38.8 ms.

        A part is rounded so that the sum adds up. If that puts it outside of a small interval, the
        interval is rounded outwards to the part's digits.
        """
        low, high = (end * self.scale.factor for end in ci95)
        if low <= value <= high:
            return f"{between(low, high)}{self._unit}"
        digits = 10.0**self.decimals
        low = min(value, math.floor(low * digits) / digits)
        high = max(value, math.ceil(high * digits) / digits)
        to = " to " if low < 0 else "–"
        return f"{fixed(low, self.decimals)}{to}{fixed(high, self.decimals)}{self._unit}"

    @property
    def _unit(self) -> str:
        """Return the unit as it follows a number."""
        return self.scale.unit if self.scale.unit == "%" else f" {self.scale.unit}"

    def signed(self, value: float, ci95: Interval | None = None) -> str:
        """Write a difference with its sign."""
        plus = "+" if value > 0 else ""
        return f"{plus}{self.text(value, ci95)}"


def _adding_up(parts: Floats, decimals: int) -> Floats:
    """Round parts so that their sum is the rounded sum: the largest remainders are rounded up.

    Args:
        parts: those of a sum, or rows of them.
        decimals: the digits.
    """
    exact = parts * 10.0**decimals
    floors = np.floor(exact)
    missing = np.rint(exact.sum(axis=-1)) - floors.sum(axis=-1)
    by_remainder = np.argsort(floors - exact, axis=-1, kind="stable")
    place = np.argsort(by_remainder, axis=-1)
    rounded: Floats = (floors + (place < missing[..., None])) / 10.0**decimals
    return rounded


@cache
def _down_or_up(count: int) -> Ints:
    """Return all ways to round this many numbers down (0) or up (1): ways × numbers."""
    return np.array(list(itertools.product((0, 1), repeat=count)))


def _split_and_rounded(parts: Floats, shares: Floats) -> tuple[Ints, Ints]:
    """Round parts and shares to whole numbers: the nearest of all ways that add up.

    Each number is rounded down or up. A way that also rounds all sums always exists: it is
    the controlled rounding of a table with two columns.
    """
    count = len(shares)
    # Whole numbers: the shares, the parts without them, and the parts that are not split.
    exact = np.concatenate([shares, parts[:count] - shares, parts[count:]])
    rounded = np.floor(exact).astype(np.int64) + _down_or_up(len(exact))
    off = rounded - exact
    off_parts = off[:, :count] + off[:, count : 2 * count]
    off_sums = np.column_stack(
        [off_parts, off[:, :count].sum(axis=1), off[:, count:].sum(axis=1), off.sum(axis=1)]
    )
    every = np.hstack([off, off_sums])
    allowed = (np.abs(every) < 1).all(axis=1) & (np.abs(every[:, -1]) <= 0.5 + _SAME)
    best = np.flatnonzero(allowed)[np.argmin((every[allowed] ** 2).sum(axis=1))]
    chosen = rounded[best]
    whole = np.concatenate([chosen[:count] + chosen[count : 2 * count], chosen[2 * count :]])
    return whole, chosen[:count]

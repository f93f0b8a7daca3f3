"""Write figures in the cells of a table that names the unit once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from stallscope.formatting.numbers import (
    NOT_MEASURED,
    Interval,
    Scale,
    finite,
    plus_minus,
    scale_for,
    signed,
    significant,
)


@dataclass(frozen=True)
class Cells:
    """Milliseconds in one unit, with the digits of the largest."""

    scale: Scale
    largest: float | None

    @classmethod
    def for_all(cls, milliseconds: Iterable[float | None]) -> Cells:
        """Choose a readable unit for the largest of these values."""
        most = max((finite(value) or 0.0 for value in milliseconds), default=0.0)
        return cls(scale_for(most, "ms"), most)

    @property
    def unit(self) -> str:
        return self.scale.unit

    def plain(self, value: float | None) -> str:
        known = finite(value)
        return NOT_MEASURED if known is None else significant(self._in(known), self._largest_shown)

    def excess(self, value: float | None, ci95: Interval | None = None) -> str:
        """Write a difference with its sign."""
        known = finite(value)
        if known is None:
            return NOT_MEASURED
        return signed(self._in(known), self._largest_shown, self._inside(ci95))

    def mean(self, value: float | None, ci95: Interval | None) -> str:
        known = finite(value)
        return NOT_MEASURED if known is None else plus_minus(self._in(known), self._inside(ci95))

    def _in(self, value: float) -> float:
        return value * self.scale.factor

    def _inside(self, ci95: Interval | None) -> Interval | None:
        return None if ci95 is None else (self._in(ci95[0]), self._in(ci95[1]))

    @property
    def _largest_shown(self) -> float | None:
        return self._in(self.largest) if self.largest else None

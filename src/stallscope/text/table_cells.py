"""Write figures and dates in the cells of tables."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

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

_UNITS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))


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


# -- Write recorded values for people: ages, and code in sentences --------------------------------


def age(began: str | None, now: datetime) -> str:
    """Write an age: 5 h; empty if the start is unknown."""
    if began is None:
        return ""
    seconds = (now - datetime.fromisoformat(began)).total_seconds()
    return "now" if seconds < 60 else rough_duration(seconds)


def rough_duration(seconds: float) -> str:
    """Write a duration in whole units, rounded down: 12 min."""
    return next(
        f"{int(seconds // length)} {unit}"
        for length, unit in _UNITS
        if seconds >= length or length == 1
    )


def code_parts(text: str) -> list[tuple[str, bool]]:
    """Split a sentence into words and code; unpaired backticks are words."""
    split = text.split("`")
    if len(split) % 2 == 0:
        return [(text, False)]
    return [(part, bool(at % 2)) for at, part in enumerate(split) if part]

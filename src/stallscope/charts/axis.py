"""Axes of values, which both drawings share: limits, a readable unit, ticks, labels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from stallscope.formatting.numbers import scale_for

_ROUND = (1.0, 2.0, 2.5, 5.0, 10.0)
# Shorter spans are zero in every unit.
_SMALLEST = 1e-12


@dataclass(frozen=True)
class Axis:
    """Values from ``low`` to ``high`` in a unit."""

    low: float
    high: float
    unit: str = ""
    #: The factor that converts the chart's values to that unit.
    factor: float = 1.0
    #: Whether its values are differences.
    signed: bool = False

    @classmethod
    def over(cls, low: float, high: float, unit: str = "", *, signed: bool = False) -> Axis:
        """Make an axis over a chart's values, in a readable unit and at least 1 long."""
        scale = scale_for(max(abs(low), abs(high)), unit)
        low, high = low * scale.factor, high * scale.factor
        if high - low <= _SMALLEST:
            high = low + 1.0
        return cls(low, high, scale.unit, scale.factor, signed)

    def ticks(self, most: int) -> list[float]:
        """Place up to ``most`` + 1 ticks at round values."""
        step = self.tick_step(most)
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [index * step for index in range(first, last + 1)]

    def tick_step(self, most: int) -> float:
        """Return the distance of up to ``most`` + 1 ticks."""
        return _tick_step(self.high - self.low, most)

    def labels(self, ticks: Sequence[float]) -> list[str]:
        """Write ticks with the decimals that their step needs, and the unit with the last one."""
        step = ticks[1] - ticks[0] if len(ticks) > 1 else 1.0
        decimals = next(
            (places for places in range(12) if abs(round(step, places) - step) < step * 1e-6), 12
        )
        sign = "+" if self.signed else ""
        texts = [f"{tick:{sign},.{decimals}f}".replace("-", "−") if tick else "0" for tick in ticks]
        if texts and self.unit:
            texts[-1] += self.unit if self.unit == "%" else f" {self.unit}"
        return texts


def _tick_step(span: float, most: int) -> float:
    """Find the smallest round step that fits no more than ``most`` times into the span."""
    raw = span / max(most, 1)
    power = 10.0 ** math.floor(math.log10(raw))
    return next(power * step for step in _ROUND if power * step >= raw * (1 - 1e-9))

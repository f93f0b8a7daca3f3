"""Axes: from values to pixels, ticks at round values, grid lines."""

from __future__ import annotations

import math
from dataclasses import dataclass

from .markup import line, text

_ROUND = (1.0, 2.0, 2.5, 5.0, 10.0)
# Spans below this are zero to any unit that is shown.
_SMALLEST = 1e-12


@dataclass(frozen=True)
class Axis:
    """Values from ``low`` to ``high`` on pixels from ``start`` to ``end``."""

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        """The pixel of a value; beyond the axis, that of its end."""
        inside = min(max(value, self.low), self.high)
        return self.start + (inside - self.low) / (self.high - self.low) * (self.end - self.start)

    def ticks(self, most: int) -> list[float]:
        """Round values on the axis."""
        step = tick_step(self.high - self.low, most)
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [index * step for index in range(first, last + 1)]


def axis_over(low: float, high: float, start: float, end: float) -> Axis:
    """An axis over these values; one unit long where there is no difference between them."""
    return Axis(low, high if high - low > _SMALLEST else low + 1.0, start, end)


def tick_step(span: float, most: int) -> float:
    """The smallest round step of which no more than ``most`` fit into the span."""
    raw = span / max(most, 1)
    power = 10.0 ** math.floor(math.log10(raw))
    return next(power * step for step in _ROUND if power * step >= raw * (1 - 1e-9))


def tick_labels(ticks: list[float]) -> list[str]:
    """Ticks with as many decimals as their step needs."""
    step = ticks[1] - ticks[0] if len(ticks) > 1 else 1.0
    decimals = next(
        (places for places in range(12) if abs(round(step, places) - step) < step * 1e-6), 12
    )
    return [f"{tick:,.{decimals}f}".replace("-", "−") if tick else "0" for tick in ticks]


def horizontal(axis: Axis, top: float, bottom: float, unit: str, most: int) -> str:
    """Grid lines down from ``top``, and labels below ``bottom``; the last one has the unit."""
    ticks = axis.ticks(most)
    labels = tick_labels(ticks)
    parts = []
    for tick, label in zip(ticks, labels, strict=True):
        x = axis.at(tick)
        parts.append(line(x, top, x, bottom, class_="zero" if tick == 0 else "grid"))
        named = f"{label} {unit}" if tick == ticks[-1] else label
        parts.append(text(named, x, bottom + 16, class_="tick", text_anchor="middle"))
    return "".join(parts)


def vertical(axis: Axis, left: float, right: float, unit: str, most: int) -> str:
    """Grid lines to the right of ``left``, and labels before it; the topmost one has the unit."""
    ticks = axis.ticks(most)
    labels = tick_labels(ticks)
    parts = []
    for tick, label in zip(ticks, labels, strict=True):
        y = axis.at(tick)
        parts.append(line(left, y, right, y, class_="zero" if tick == 0 else "grid"))
        named = f"{label} {unit}" if tick == ticks[-1] else label
        parts.append(text(named, left - 8, y + 4, class_="tick", text_anchor="end"))
    return "".join(parts)

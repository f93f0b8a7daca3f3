"""Axes of values, which both drawings share: limits, a readable unit, ticks, labels and their widths."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from stallscope.arrays.types import Floats
from stallscope.formatting.numbers import scale_for, significant

from .chart_kinds import StackedArea

_ROUND = (1.0, 2.0, 2.5, 5.0, 10.0)
# Shorter spans are zero in every unit.
_SMALLEST = 1e-12
# Peaks this many times above nearly all points would flatten all the rest: they are cut and marked.
_PEAK = 2.0
_NEARLY_ALL = 98
_REACH = 0.75
# Nearly half a step: it rounds to the step itself.
_HALF = 0.49

TEXT_SIZE = 13.0
#: Bold text is this much wider.
BOLD = 1.1
_ELLIPSIS = "…"
_SLIM = frozenset(" .,:;'|!iljtfrI()[]")
_BROAD = frozenset("mw%±+−<>=@")


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


# -- Stacked areas over the run: the layout that both drawings share ------------------------------


@dataclass(frozen=True)
class Areas:
    """A chart's layers to draw, in the unit of the vertical axis."""

    chart: StackedArea
    x: Floats
    y: Axis
    #: Layers × points; negative and missing values are 0.
    layers: Floats
    #: Points beyond the axis, with tooltips.
    peaks: tuple[tuple[float, str], ...]
    #: Pauses between steps, with tooltips.
    pauses: tuple[tuple[float, str], ...]


def areas_of(chart: StackedArea) -> Areas:
    """Lay out the layers, cut at the axis' end."""
    layers = np.zeros((len(chart.layers), len(chart.x)))
    for at, (_, values) in enumerate(chart.layers):
        layers[at] = np.maximum(np.nan_to_num(values, nan=0.0, posinf=0.0, neginf=0.0), 0.0)
    totals = layers.sum(axis=0)
    high = 0.0 if chart.windows is None else float(chart.windows.p95.max())
    y = Axis.over(0.0, max(_limit(totals), min(high, _limit(totals) * _PEAK)), chart.unit)
    x = chart.x
    if len(x) == 1:
        # A single step gets a width, too.
        x, layers = np.array([x[0] - _HALF, x[0] + _HALF]), np.repeat(layers, 2, axis=1)
    return Areas(
        chart,
        x,
        y,
        layers * y.factor,
        tuple(_peaks(chart.x, totals * y.factor, y)),
        tuple((at, f"before step {at:,.0f}: {label}") for at, label in chart.pauses),
    )


def _limit(totals: Floats) -> float:
    """Find how high the axis reaches."""
    if not len(totals):
        return 0.0
    usual, highest = float(np.percentile(totals, _NEARLY_ALL)), float(totals.max())
    return usual * _PEAK * _REACH if usual and highest > usual * _PEAK else highest


def _peaks(x: Floats, totals: Floats, y: Axis) -> Iterator[tuple[float, str]]:
    for index in np.flatnonzero(totals > y.high * (1 + 1e-9)).tolist():
        at = float(x[index])
        yield at, f"step {at:,.0f}: {significant(totals[index])} {y.unit}"


# -- Estimate the width of text -------------------------------------------------------------------


def text_width(content: str, size: float = TEXT_SIZE) -> float:
    """Estimate a text's pixels in a wide sans-serif font; common fonts take less."""
    return size * sum(map(_relative_width, content))


def _relative_width(character: str) -> float:
    if unicodedata.east_asian_width(character) in "WF":
        return 1.05
    if character in _SLIM:
        return 0.38
    return 0.86 if character in _BROAD or character.isupper() else 0.63


def shortened(content: str, width: float) -> str:
    """Cut a text that is wider than ``width`` pixels, with an ellipsis at its end."""
    if text_width(content) <= width:
        return content
    while content and text_width(content + _ELLIPSIS) > width:
        content = content[:-1]
    return content.rstrip() + _ELLIPSIS

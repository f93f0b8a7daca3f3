"""Machine metrics over the run: a mean within a range."""

from __future__ import annotations

import numpy as np

from stallscope.arrays.types import Floats

from ..axis import Axis
from ..over_time import OverTime
from .axis import AXIS_HEIGHT, PixelAxis, horizontal, left_margin, vertical
from .markup import element

_TOP = 16.0
_TICKS = 4


def draw_over_time(chart: OverTime, width: float) -> tuple[list[str], float]:
    """Draw the chart into a width; return the markup and its height."""
    y = PixelAxis(chart.y, _TOP + width * 0.08 + 70, _TOP)
    left = left_margin(chart.y, _TICKS)
    middles = chart.x * chart.times.factor
    half = float(middles[-1] - middles[0]) / (len(middles) - 1) / 2
    ends = Axis(float(middles[0]) - half, float(middles[-1]) + half, chart.times.unit)
    x = PixelAxis(ends, left, width - 12)
    parts = [
        vertical(y, left, width - 12, most=_TICKS),
        _range(chart, x, y, middles, half),
        _mean(chart, x, y, middles, half),
        horizontal(x, y.start, y.start),
    ]
    return parts, y.start + AXIS_HEIGHT


def _range(chart: OverTime, x: PixelAxis, y: PixelAxis, middles: Floats, half: float) -> str:
    """Draw the range of single values as one path."""
    columns = chart.columns
    parts = []
    for at in np.flatnonzero(columns.high > columns.low).tolist():
        left, right = x.at(middles[at] - half), x.at(middles[at] + half)
        high, low = y.at(float(columns.high[at])), y.at(float(columns.low[at]))
        top, bottom = f"{left:.1f} {high:.1f}L{right:.1f} {high:.1f}", f"{right:.1f} {low:.1f}"
        parts.append(f"M{top}L{bottom}L{left:.1f} {low:.1f}Z")
    return element("path", d="".join(parts), class_="fill-warmup") if parts else ""


def _mean(chart: OverTime, x: PixelAxis, y: PixelAxis, middles: Floats, half: float) -> str:
    """Draw a line that breaks off where nothing was measured."""
    parts, before = [], -2
    for at in np.flatnonzero(~np.isnan(chart.columns.mean)).tolist():
        left, right = x.at(middles[at] - half), x.at(middles[at] + half)
        level = y.at(float(chart.columns.mean[at]))
        to = "L" if before == at - 1 else "M"
        parts.append(f"{to}{left:.1f} {level:.1f}L{right:.1f} {level:.1f}")
        before = at
    return element("path", d="".join(parts), class_="curve ideal")

"""What machines measured over the run: a mean within a range."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from stallscope.formatting.numbers import scale_for

from ..over_time import OverTime
from .axis import Axis, axis_over, horizontal, vertical
from .frame import frame
from .markup import element, text_width

Floats = npt.NDArray[np.float64]

_TOP = 16.0
_AXIS = 26.0


def draw_over_time(chart: OverTime, key: str, width: float) -> str:
    """The chart as SVG of that width in pixels."""
    times = scale_for(float(chart.x[-1]), "s")
    y = axis_over(0.0, chart.top, _TOP + width * 0.08 + 70, _TOP)
    left = text_width(f"{chart.top:,.1f} {chart.unit}") + 8
    half = float(chart.x[-1] - chart.x[0]) / (len(chart.x) - 1) / 2 * times.factor
    middles = chart.x * times.factor
    x = axis_over(float(middles[0]) - half, float(middles[-1]) + half, left, width - 12)
    parts = [
        vertical(y, left, width - 12, chart.unit, most=4),
        _range(chart, x, y, middles, half),
        _mean(chart, x, y, middles, half),
        horizontal(x, y.start, y.start, times.unit, most=int(width / 110)),
    ]
    return frame(chart, key, width, y.start + _AXIS, *parts)


def _range(chart: OverTime, x: Axis, y: Axis, middles: Floats, half: float) -> str:
    """What single values go from and to, as one path."""
    columns = chart.columns
    parts = []
    for at in np.flatnonzero(columns.high > columns.low).tolist():
        left, right = x.at(middles[at] - half), x.at(middles[at] + half)
        high, low = y.at(float(columns.high[at])), y.at(float(columns.low[at]))
        top, bottom = f"{left:.1f} {high:.1f}L{right:.1f} {high:.1f}", f"{right:.1f} {low:.1f}"
        parts.append(f"M{top}L{bottom}L{left:.1f} {low:.1f}Z")
    return element("path", d="".join(parts), class_="fill-warmup") if parts else ""


def _mean(chart: OverTime, x: Axis, y: Axis, middles: Floats, half: float) -> str:
    """A line that breaks off where nothing was measured."""
    parts, before = [], -2
    for at in np.flatnonzero(~np.isnan(chart.columns.mean)).tolist():
        left, right = x.at(middles[at] - half), x.at(middles[at] + half)
        level = y.at(float(chart.columns.mean[at]))
        to = "L" if before == at - 1 else "M"
        parts.append(f"{to}{left:.1f} {level:.1f}L{right:.1f} {level:.1f}")
        before = at
    return element("path", d="".join(parts), class_="curve ideal")

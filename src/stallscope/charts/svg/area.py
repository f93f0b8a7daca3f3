"""Stacked areas over the run."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from stallscope.formatting.numbers import Scale, amount, percent, scale_for, significant

from ..charts import StackedArea
from .axis import Axis, axis_over, horizontal, vertical
from .frame import frame, legend, title_of
from .markup import coordinate, element, line, rectangle, text, text_width, tooltip

Floats = npt.NDArray[np.float64]

_TOP = 22.0
_AXIS = 26.0
_CHANGE_ROW = 18.0
# Peaks this many times above nearly all points would flatten all the rest: they are cut, and marked.
_PEAK = 2.0
_NEARLY_ALL = 98


def draw_area(chart: StackedArea, key: str, width: float) -> str:
    """The chart as SVG of that width in pixels."""
    layers = [np.nan_to_num(values, nan=0.0, posinf=0.0, neginf=0.0) for _, values in chart.layers]
    tops = np.cumsum(np.maximum(layers, 0), axis=0) if layers else np.zeros((1, len(chart.x)))
    highest = _limit(tops[-1])
    scale = scale_for(highest, chart.unit)
    tops = tops * scale.factor
    y = axis_over(0.0, highest * scale.factor, _TOP + width * 0.28 + 60, _TOP)
    left = text_width(f"{significant(y.high)}0 {scale.unit}") + 8
    x, positions = _along(chart.x, left, width - 8)
    parts = [vertical(y, left, width - 8, scale.unit, most=6)]
    parts += [_layer(chart, index, tops, x, positions, y) for index in range(len(chart.layers))]
    parts += [_marks(chart, x, y), _peaks(tops[-1], x, positions, y, scale)]
    parts += [_changes(chart, x, y), _pauses(chart, x, y)]
    parts.append(horizontal(x, y.start, y.start, chart.x_label, most=int(width / 110)))
    swatches, end = legend(_legend_entries(chart), y.start + _AXIS, width)
    return frame(chart, key, width, end, *parts, swatches)


def _limit(totals: Floats) -> float:
    """How high the axis reaches."""
    if not len(totals):
        return 0.0
    usual, highest = float(np.percentile(totals, _NEARLY_ALL)), float(totals.max())
    return usual * _PEAK * 0.75 if usual and highest > usual * _PEAK else highest


def _along(x: Floats, start: float, end: float) -> tuple[Axis, Floats]:
    """The horizontal axis and the points on it; a single point is drawn as wide as the picture."""
    if len(x) == 1:
        return Axis(x[0] - 0.5, x[0] + 0.5, start, end), np.array([x[0] - 0.5, x[0] + 0.5])
    low, high = (float(x[0]), float(x[-1])) if len(x) else (0.0, 0.0)
    return axis_over(low, high, start, end), x


def _layer(
    chart: StackedArea, index: int, tops: Floats, x: Axis, positions: Floats, y: Axis
) -> str:
    name, values = chart.layers[index]
    if not np.any(values > 0):
        return ""
    floor = tops[index - 1] if index else np.zeros_like(tops[0])
    upper, lower = _points(positions, tops[index], x, y), _points(positions, floor, x, y)
    mean, whole = float(values.mean()), sum(float(layer.mean()) for _, layer in chart.layers)
    what = f"{title_of(name)}: {amount(mean, chart.unit)} on average, {percent(mean / whole)}"
    path = f"M{'L'.join(upper)}L{'L'.join(reversed(lower))}Z"
    return element("path", tooltip(what), d=path, class_=f"area fill-{name}")


def _points(positions: Floats, heights: Floats, x: Axis, y: Axis) -> list[str]:
    spread = np.broadcast_to(heights, positions.shape)
    pairs = zip(_pixels(positions, x), _pixels(spread, y), strict=True)
    return [f"{across} {down}" for across, down in pairs]


def _pixels(values: Floats, axis: Axis) -> list[str]:
    """As ``Axis.at``, for thousands of points, in tenths."""
    inside = np.clip(values, axis.low, axis.high)
    shares = (inside - axis.low) / (axis.high - axis.low)
    pixels = axis.start + shares * (axis.end - axis.start)
    return [f"{pixel:g}" for pixel in np.round(pixels, 1).tolist()]


def _marks(chart: StackedArea, x: Axis, y: Axis) -> str:
    """Lines where epochs begin, with names as far as there is room."""
    parts, free = [], x.start
    for at, label in chart.marks:
        if not x.low <= at <= x.high:
            continue
        place = x.at(at)
        parts.append(line(place, y.end - 4, place, y.start, class_="mark"))
        if place >= free and place + text_width(label) < x.end:
            parts.append(text(label, place, y.end - 9, class_="tick"))
            free = place + text_width(label) + 12
    return "".join(parts)


def _changes(chart: StackedArea, x: Axis, y: Axis) -> str:
    """Lines where step time changed for good, with what changed."""
    parts, row = [], 0
    for at, label in chart.changes:
        if not x.low <= at <= x.high:
            continue
        place, wide = x.at(at), text_width(label)
        left = place + 6 if place + wide + 6 < x.end else place - wide - 6
        top = y.end + 6 + row * _CHANGE_ROW
        parts.append(line(place, y.end, place, y.start, class_="change"))
        parts.append(rectangle(left - 4, top, wide + 8, _CHANGE_ROW, class_="paper", rx=2))
        parts.append(text(label, left, top + 13, class_="strong"))
        row += 1
    return "".join(parts)


def _pauses(chart: StackedArea, x: Axis, y: Axis) -> str:
    """Triangles on the axis where something lies between steps."""
    parts = []
    for at, label in chart.pauses:
        if x.low <= at <= x.high:
            place = x.at(at)
            shape = f"M{coordinate(place - 5)} {coordinate(y.start + 1)}l10 0l-5 -9Z"
            what = tooltip(f"before step {at:,.0f}: {label}")
            parts.append(element("path", what, d=shape, class_="pause"))
    return "".join(parts)


def _peaks(totals: Floats, x: Axis, positions: Floats, y: Axis, scale: Scale) -> str:
    """Triangles where the areas go on beyond the axis."""
    parts = []
    for index in np.flatnonzero(totals > y.high * (1 + 1e-9)).tolist():
        at = x.at(float(positions[index]))
        shape = f"M{coordinate(at - 4)} {y.end + 7:g}L{coordinate(at + 4)} {y.end + 7:g}"
        what = f"step {positions[index]:,.0f}: {significant(totals[index])} {scale.unit}"
        peak = f"{shape}L{coordinate(at)} {y.end:g}Z"
        parts.append(element("path", tooltip(what), d=peak, class_="beyond"))
    return "".join(parts)


def _legend_entries(chart: StackedArea) -> list[tuple[str, str]]:
    return [(name, title_of(name)) for name, _ in chart.layers]

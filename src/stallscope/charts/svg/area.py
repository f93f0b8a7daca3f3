"""Stacked areas over the run."""

from __future__ import annotations

import numpy as np

from stallscope.arrays.types import Floats
from stallscope.formatting.numbers import amount, percent
from stallscope.text.titles import title_of

from ..area import Areas
from ..axis import Axis
from ..text_width import text_width
from .axis import AXIS_HEIGHT, PixelAxis, horizontal, left_margin, vertical
from .markup import coordinate, element, line, rectangle, text, tooltip

_TOP = 22.0
_TICKS = 6
_CHANGE_ROW = 18.0


def draw_area(areas: Areas, width: float) -> tuple[list[str], float]:
    """Draw areas into a width; return the markup and its height."""
    y = PixelAxis(areas.y, _TOP + width * 0.28 + 60, _TOP)
    left = left_margin(areas.y, _TICKS)
    ends = (float(areas.x[0]), float(areas.x[-1])) if len(areas.x) else (0.0, 0.0)
    x = PixelAxis(Axis.over(*ends, areas.chart.x_label), left, width - 8)
    parts = [vertical(y, left, width - 8, most=_TICKS), *_layers(areas, x, y)]
    parts += [
        _windows(areas, x, y),
        _marks(areas, x, y),
        _peaks(areas, x, y),
        _changes(areas, x, y),
    ]
    parts.append(_pauses(areas, x, y))
    parts.append(horizontal(x, y.start, y.start))
    return parts, y.start + AXIS_HEIGHT


def _layers(areas: Areas, x: PixelAxis, y: PixelAxis) -> list[str]:
    across, floor = _pixels(areas.x, x), np.zeros(len(areas.x))
    total = float(areas.layers.mean(axis=1).sum()) if areas.layers.size else 0.0
    parts = []
    for (name, _), values in zip(areas.chart.layers, areas.layers, strict=True):
        lower, floor = _points(across, floor, y), floor + values
        if not values.any():
            continue
        mean = float(values.mean())
        hover = (
            f"{title_of(name)}: {amount(mean, areas.y.unit)} on average, {percent(mean / total)}"
        )
        path = f"M{'L'.join(_points(across, floor, y))}L{'L'.join(reversed(lower))}Z"
        parts.append(element("path", tooltip(hover), d=path, class_=f"area fill-{name}"))
    return parts


def _points(across: list[str], heights: Floats, y: PixelAxis) -> list[str]:
    return [f"{x} {down}" for x, down in zip(across, _pixels(heights, y), strict=True)]


def _pixels(values: Floats, axis: PixelAxis) -> list[str]:
    """Place thousands of values as ``PixelAxis.at`` does one, in tenths of a pixel."""
    low, high = axis.axis.low, axis.axis.high
    shares = (np.clip(values, low, high) - low) / (high - low)
    pixels = axis.start + shares * (axis.end - axis.start)
    return [f"{pixel:g}" for pixel in np.round(pixels, 1).tolist()]


def _windows(areas: Areas, x: PixelAxis, y: PixelAxis) -> str:
    """Draw the median and the 95th percentile of windows, which stand out from single steps."""
    windows, factor, parts = areas.chart.windows, areas.y.factor, []
    if windows is None:
        return ""
    across = _pixels(windows.x, x)
    for values, style in ((windows.p95, "window high"), (windows.median, "window")):
        path = f"M{'L'.join(_points(across, values * factor, y))}"
        parts.append(element("path", d=path, class_="halo") + element("path", d=path, class_=style))
    return "".join(parts)


def _marks(areas: Areas, x: PixelAxis, y: PixelAxis) -> str:
    """Draw lines where epochs start, with the names that fit."""
    parts, free = [], x.start
    for at, label in filter(lambda mark: x.holds(mark[0]), areas.chart.marks):
        place = x.at(at)
        parts.append(line(place, y.end - 4, place, y.start, class_="mark"))
        if place >= free and place + text_width(label) < x.end:
            parts.append(text(label, place, y.end - 9, class_="tick"))
            free = place + text_width(label) + 12
    return "".join(parts)


def _changes(areas: Areas, x: PixelAxis, y: PixelAxis) -> str:
    """Draw lines where the step time changes for good, with labels."""
    parts = []
    for row, (at, label) in enumerate(
        change for change in areas.chart.changes if x.holds(change[0])
    ):
        place, wide = x.at(at), text_width(label)
        left = place + 6 if place + wide + 6 < x.end else place - wide - 6
        top = y.end + 6 + row * _CHANGE_ROW
        parts.append(line(place, y.end, place, y.start, class_="change"))
        parts.append(rectangle(left - 4, top, wide + 8, _CHANGE_ROW, class_="paper", rx=2))
        parts.append(text(label, left, top + 13, class_="strong"))
    return "".join(parts)


def _pauses(areas: Areas, x: PixelAxis, y: PixelAxis) -> str:
    """Draw triangles on the axis at pauses between steps."""
    parts = []
    for at, hover in filter(lambda pause: x.holds(pause[0]), areas.pauses):
        shape = f"M{coordinate(x.at(at) - 5)} {coordinate(y.start + 1)}l10 0l-5 -9Z"
        parts.append(element("path", tooltip(hover), d=shape, class_="pause"))
    return "".join(parts)


def _peaks(areas: Areas, x: PixelAxis, y: PixelAxis) -> str:
    """Draw triangles where the areas exceed the axis."""
    parts = []
    for value, hover in areas.peaks:
        at, top = x.at(value), y.end + 7
        shape = f"M{coordinate(at - 4)} {top:g}L{coordinate(at + 4)} {top:g}"
        peak = f"{shape}L{coordinate(at)} {y.end:g}Z"
        parts.append(element("path", tooltip(hover), d=peak, class_="beyond"))
    return "".join(parts)

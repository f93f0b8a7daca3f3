"""Dots, lines and areas between two axes, also over time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stallscope.arrays.types import Floats
from stallscope.formatting.numbers import amount, percent
from stallscope.text.vocabulary import title_of

from ..axis import Areas, Axis, shortened, text_width
from ..curves import Curve, Curves, Dot, moved_apart
from ..step_time import OverTime
from .markup import (
    AXIS_HEIGHT,
    PixelAxis,
    coordinate,
    element,
    horizontal,
    left_margin,
    line,
    named_below,
    rectangle,
    text,
    tooltip,
    vertical,
    whisker,
)

_TOP = 26.0
_TICKS = 6
_NAME_LINE = 15.0
# The largest share of the width for names.
_NAMES = 0.36
_AREA_TOP = 22.0
_CHANGE_ROW = 18.0

_GAUGE_TOP = 16.0
_GAUGE_TICKS = 4


def draw_curves(curves: Curves, width: float) -> tuple[list[str], float]:
    """Draw curves into a width; return the markup and its height."""
    labels = [name for name, _, _ in curves.names]
    listed: list[str] = []
    if max(map(text_width, labels), default=0.0) + 16 > width * _NAMES:
        labels, listed = _numbered(curves)
    right = min(max(map(text_width, labels), default=-4.0) + 16, width * _NAMES)
    # Names need space between them.
    height = width * 0.22 + 126 if curves.names else width * 0.15 + 110
    y = PixelAxis(curves.y, _TOP + height, _TOP)
    left = left_margin(curves.y, _TICKS, curves.x.unit)
    x = PixelAxis(curves.x, left, width - right)
    parts = [vertical(y, x.start, x.end, most=_TICKS)]
    parts += [_mark(at, label, x, y, width) for at, label in curves.marks]
    parts += [_line(curve, x, y) for curve in curves.curves if curve.joined]
    parts += [
        _dot(dot, curve, x, y) for curve in curves.curves if curve.dotted for dot in curve.dots
    ]
    parts += _names(curves, labels, x, y, right - 12)
    parts.append(named_below(x, y.start, list(curves.x_ticks)))
    bottom = y.start + AXIS_HEIGHT
    parts += [
        text(shortened(name, width), 0.0, bottom + (at + 1) * _NAME_LINE, class_="tick")
        for at, name in enumerate(listed)
    ]
    return parts, bottom + (len(listed) + 1) * _NAME_LINE if listed else bottom


def _numbered(curves: Curves) -> tuple[list[str], list[str]]:
    """Number the published curves; return the labels in the chart, and the names for the list below."""
    labels: list[str] = []
    listed: list[str] = []
    for name, _, others in curves.names:
        if others:
            listed.append(f"{len(listed) + 1}: {name}")
        labels.append(f"{len(listed)}" if others else name)
    return labels, listed


def _mark(value: float, label: str, x: PixelAxis, y: PixelAxis, width: float) -> str:
    at, label = x.at(value), shortened(label, width - 24)
    # To the side with space.
    before = at + text_width(label) > width
    return line(at, y.end - 6, at, y.start, class_="change") + text(
        label,
        at - 5 if before else at + 5,
        y.end - 10,
        class_="strong",
        text_anchor="end" if before else None,
    )


def _line(curve: Curve, x: PixelAxis, y: PixelAxis) -> str:
    spots = ((x.at(dot.x), y.at(dot.y)) for dot in curve.dots if dot.y is not None)
    path = "L".join(f"{coordinate(left)} {coordinate(top)}" for left, top in spots)
    return element("path", d=f"M{path}", class_=f"curve {curve.style}")


def _dot(dot: Dot, curve: Curve, x: PixelAxis, y: PixelAxis) -> str:
    at, tip = x.at(dot.x), tooltip(dot.hover)
    if dot.y is None:
        return element("text", "–", tip, x=at, y=y.start - 4, class_="tick", text_anchor="middle")
    radius = 3.0 if curve.style == "others" else 4.5
    circle = element("circle", tip, cx=at, cy=y.at(dot.y), r=radius, class_=f"dot {curve.style}")
    if dot.whisker is None:
        return circle
    low, high = map(y.at, dot.whisker)
    return element("g", whisker(at, low, at, high), circle)


def _names(
    curves: Curves, labels: Sequence[str], x: PixelAxis, y: PixelAxis, room: float
) -> list[str]:
    """Write labels after the last dots, with lines to those that had to be moved."""
    parts = []
    wanted = [y.at(dot.y or 0.0) for _, dot, _ in curves.names]
    # Pixels grow downwards, values upwards.
    moved = [-level for level in moved_apart([-at for at in wanted], _NAME_LINE)]
    for (_, dot, others), label, at, top in zip(curves.names, labels, wanted, moved, strict=True):
        end = x.at(dot.x)
        if top - at > _NAME_LINE or x.end - end > 2:
            parts.append(line(end + 5, at, x.end + 4, top, class_="leader"))
        style = "tick" if others else "strong"
        parts.append(text(shortened(label, room), x.end + 8, top + 4, class_=style))
    return parts


# -- Stacked areas over the run -------------------------------------------------------------------


def draw_area(areas: Areas, width: float) -> tuple[list[str], float]:
    """Draw areas into a width; return the markup and its height."""
    y = PixelAxis(areas.y, _AREA_TOP + width * 0.28 + 60, _AREA_TOP)
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


# -- Machine metrics over the run: a mean within a range ------------------------------------------


def draw_over_time(chart: OverTime, width: float) -> tuple[list[str], float]:
    """Draw the chart into a width; return the markup and its height."""
    y = PixelAxis(chart.y, _GAUGE_TOP + width * 0.08 + 70, _GAUGE_TOP)
    left = left_margin(chart.y, _GAUGE_TICKS)
    middles = chart.x * chart.times.factor
    half = float(middles[-1] - middles[0]) / (len(middles) - 1) / 2
    ends = Axis(float(middles[0]) - half, float(middles[-1]) + half, chart.times.unit)
    x = PixelAxis(ends, left, width - 12)
    parts = [
        vertical(y, left, width - 12, most=_GAUGE_TICKS),
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

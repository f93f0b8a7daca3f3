"""Heat maps: cells in a few shades, those of one shade drawn as one."""

from __future__ import annotations

from itertools import groupby

import numpy as np

from stallscope.arrays.types import Floats, Ints
from stallscope.formatting.numbers import amount, finite

from ..axis import Axis
from ..heat_map import HeatMap, stretches
from ..palette import HEAT
from ..text_width import BOLD, shortened, text_width
from .axis import AXIS_HEIGHT, PixelAxis, horizontal
from .markup import coordinate, element, line, rectangle, text, tooltip

_TOP = 4.0
_MARKS = 16.0
_LABELS = 0.3
_PIXELS_PER_COLUMN = 6.0
_SCALE_BOX = 20.0
_SCALE = 30.0


def draw_heat_map(chart: HeatMap, width: float) -> tuple[list[str], float]:
    """Draw the chart into a width; return the markup and its height."""
    labels = max((text_width(row.label) for row in chart.rows), default=0.0) * BOLD + 10
    ends = (float(chart.edges[0]), float(chart.edges[-1])) if len(chart.edges) else (0.0, 0.0)
    x = PixelAxis(Axis.over(*ends, chart.x_label), min(labels, width * _LABELS), width - _MARKS)
    bottom = _TOP + chart.row_height * len(chart.rows)
    edges, values = _fewer_columns(chart, int((x.end - x.start) / _PIXELS_PER_COLUMN))
    parts = [rectangle(x.start, _TOP, x.end - x.start, bottom - _TOP, class_="heat-0")]
    parts += _cells(edges, _levels(values, chart.full), x, chart.row_height)
    parts += [_holes(edges, row, x, _middle(chart, at)) for at, row in enumerate(values)]
    parts += _sides(chart, x)
    parts.append(horizontal(x, bottom, bottom))
    parts.append(_scale(chart, bottom + AXIS_HEIGHT, width))
    return parts, bottom + AXIS_HEIGHT + _SCALE


def _fewer_columns(chart: HeatMap, most: int) -> tuple[Floats, Floats]:
    """Merge columns to as many as can be distinguished, each the mean of what it stands for."""
    columns = chart.values.shape[1]
    if columns <= most:
        return chart.edges, chart.values
    at = np.unique(np.linspace(0, columns, most + 1).astype(int))
    known = np.add.reduceat(~np.isnan(chart.values), at[:-1], axis=1)
    total = np.add.reduceat(np.nan_to_num(chart.values), at[:-1], axis=1)
    means = np.where(known > 0, total / np.maximum(known, 1), np.nan)
    return chart.edges[at], means


def _levels(values: Floats, full: float) -> Ints:
    """Find the shade of every cell; −1 where nothing was measured."""
    share = np.nan_to_num(values, nan=-1.0) / (full or 1.0)
    levels = np.clip(np.rint(share * (len(HEAT) - 1)), 0, len(HEAT) - 1).astype(np.int64)
    return np.where(np.isnan(values), -1, levels)


def _cells(edges: Floats, levels: Ints, x: PixelAxis, height: float) -> list[str]:
    shapes: dict[int, list[str]] = {}
    for row, own in enumerate(levels.tolist()):
        top, bottom = coordinate(_TOP + row * height), coordinate(_TOP + (row + 1) * height)
        for level, cells in groupby(range(len(own)), key=own.__getitem__):
            members = list(cells)
            left = coordinate(x.at(float(edges[members[0]])))
            right = coordinate(x.at(float(edges[members[-1] + 1])))
            shapes.setdefault(level, []).append(
                f"M{left} {top}L{right} {top}L{right} {bottom}L{left} {bottom}Z"
            )
    return [
        element("path", d="".join(own), class_=f"heat-{level}" if level > 0 else "unmeasured")
        for level, own in sorted(shapes.items())
        # The lowest shade lies below all of them already.
        if level
    ]


def _holes(edges: Floats, row: Floats, x: PixelAxis, middle: float) -> str:
    """Draw a thin line through cells without a value, which are not zero."""
    spans = (
        (x.at(float(edges[start])), x.at(float(edges[end])))
        for start, end in stretches(np.isnan(row))
    )
    return "".join(line(start, middle, end, middle, class_="hole") for start, end in spans)


def _sides(chart: HeatMap, x: PixelAxis) -> list[str]:
    """Write labels before the rows as far as there is room, and marks after emphasised ones."""
    parts = []
    for at in chart.labelled_rows:
        row, left = chart.rows[at], x.start - 8
        style = "strong" if row.emphasised else None
        foot = _middle(chart, at) + 4.5
        parts.append(text(shortened(row.label, left), left, foot, text_anchor="end", class_=style))
    marked = (at for at, row in enumerate(chart.rows) if row.emphasised)
    return [*parts, *(_mark(chart, at, x.end + 3) for at in marked)]


def _mark(chart: HeatMap, row: int, left: float) -> str:
    middle = _middle(chart, row)
    latest = finite(float(np.nanmax(chart.most[row], initial=-np.inf)))
    hover = f"{chart.rows[row].label}: {amount(latest, chart.unit)} late at most"
    shape = (
        f"M{coordinate(left)} {coordinate(middle)}L{coordinate(left + 9)} "
        f"{coordinate(max(middle - 5, 0))}L{coordinate(left + 9)} {coordinate(middle + 5)}Z"
    )
    return element("path", tooltip(hover), d=shape, class_="named")


def _middle(chart: HeatMap, row: int) -> float:
    return _TOP + (row + 0.5) * chart.row_height


def _scale(chart: HeatMap, top: float, width: float) -> str:
    """Draw the shades from nothing to the most."""
    parts = [text("0", 0.0, top + 17)]
    for level in range(len(HEAT)):
        left = 14.0 + level * _SCALE_BOX
        parts.append(rectangle(left, top + 6, _SCALE_BOX, 13.0, class_=f"heat-{level}"))
    left = 20.0 + len(HEAT) * _SCALE_BOX
    parts.append(text(shortened(chart.most_shown, width - left), left, top + 17))
    return "".join(parts)

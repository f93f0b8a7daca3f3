"""Heat maps: cells in a few shades, those of one shade drawn as one."""

from __future__ import annotations

from itertools import groupby

import numpy as np
import numpy.typing as npt

from stallscope.formatting.numbers import amount, finite

from ..heat_map import HeatMap
from ..palette import HEAT
from .axis import Axis, axis_over, horizontal
from .frame import frame
from .markup import coordinate, element, line, rectangle, shortened, text, text_width, tooltip

Floats = npt.NDArray[np.float64]

_TOP = 4.0
_AXIS = 26.0
_MARKS = 16.0
# Heights of rows, for up to so many of them.
_HEIGHTS = ((2, 44.0), (8, 28.0), (32, 18.0), (64, 8.0), (128, 5.0))
_THINNEST = 3.0
_LABEL_ROOM = 16.0
_PIXELS_PER_COLUMN = 6.0
_SCALE_BOX = 20.0
_SCALE = 30.0
# Bold text is wider than plain text.
_BOLD = 1.1


def draw_heat_map(chart: HeatMap, key: str, width: float) -> str:
    """The chart as SVG of that width in pixels."""
    labels = max((text_width(row.label) for row in chart.rows), default=0.0)
    x = axis_over(
        float(chart.edges[0]) if len(chart.edges) else 0.0,
        float(chart.edges[-1]) if len(chart.edges) else 0.0,
        min(labels * _BOLD + 10, width * 0.3),
        width - _MARKS,
    )
    height = next((own for most, own in _HEIGHTS if len(chart.rows) <= most), _THINNEST)
    bottom = _TOP + height * len(chart.rows)
    edges, values = _fewer_columns(chart, int((x.end - x.start) / _PIXELS_PER_COLUMN))
    parts = [rectangle(x.start, _TOP, x.end - x.start, bottom - _TOP, class_="heat-0")]
    parts += _cells(edges, _levels(values, chart.full), x, height)
    parts += [_holes(edges, row, x, _middle(at, height)) for at, row in enumerate(values)]
    parts += _sides(chart, x, height)
    parts.append(horizontal(x, bottom, bottom, chart.x_label, most=int(width / 110)))
    scale = _scale(chart, bottom + _AXIS, width)
    return frame(chart, key, width, bottom + _AXIS + _SCALE, *parts, scale)


def _fewer_columns(chart: HeatMap, most: int) -> tuple[Floats, Floats]:
    """As many columns as can be distinguished, each the mean of those that it stands for."""
    columns = chart.values.shape[1]
    if columns <= most:
        return chart.edges, chart.values
    at = np.unique(np.linspace(0, columns, most + 1).astype(int))
    known = np.add.reduceat(~np.isnan(chart.values), at[:-1], axis=1)
    total = np.add.reduceat(np.nan_to_num(chart.values), at[:-1], axis=1)
    means = np.where(known > 0, total / np.maximum(known, 1), np.nan)
    return chart.edges[at], means


def _levels(values: Floats, full: float) -> npt.NDArray[np.int64]:
    """The shade of every cell; −1 where nothing was measured."""
    share = np.nan_to_num(values, nan=-1.0) / (full or 1.0)
    levels = np.clip(np.rint(share * (len(HEAT) - 1)), 0, len(HEAT) - 1).astype(np.int64)
    return np.where(np.isnan(values), -1, levels)


def _cells(edges: Floats, levels: npt.NDArray[np.int64], x: Axis, height: float) -> list[str]:
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


def _holes(edges: Floats, row: Floats, x: Axis, middle: float) -> str:
    """A thin line through cells without a value: nothing is not nought."""
    parts = []
    for missing, cells in groupby(range(len(row)), key=np.isnan(row).__getitem__):
        members = list(cells)
        if missing:
            begin, end = x.at(float(edges[members[0]])), x.at(float(edges[members[-1] + 1]))
            parts.append(line(begin, middle, end, middle, class_="hole"))
    return "".join(parts)


def _sides(chart: HeatMap, x: Axis, height: float) -> list[str]:
    """Labels before the rows as far as there is room, and marks behind emphasised ones."""
    parts = []
    for at in _labelled(chart, height):
        row = chart.rows[at]
        label = shortened(row.label, x.start - 8)
        style = "strong" if row.emphasised else None
        y = _middle(at, height) + 4.5
        parts.append(text(label, x.start - 8, y, text_anchor="end", class_=style))
    return parts + [
        _mark(chart, at, x.end + 3, _middle(at, height))
        for at, row in enumerate(chart.rows)
        if row.emphasised
    ]


def _labelled(chart: HeatMap, height: float) -> list[int]:
    """Rows whose labels have room, the emphasised ones before the others."""
    chosen: list[int] = []
    for at in sorted(range(len(chart.rows)), key=lambda row: not chart.rows[row].emphasised):
        if all(abs(at - other) * height >= _LABEL_ROOM for other in chosen):
            chosen.append(at)
    return sorted(chosen)


def _mark(chart: HeatMap, row: int, left: float, middle: float) -> str:
    latest = finite(float(np.nanmax(chart.most[row], initial=-np.inf)))
    what = f"{chart.rows[row].label}: {amount(latest, chart.unit)} late at most"
    shape = (
        f"M{coordinate(left)} {coordinate(middle)}L{coordinate(left + 9)} "
        f"{coordinate(max(middle - 5, 0))}L{coordinate(left + 9)} {coordinate(middle + 5)}Z"
    )
    return element("path", tooltip(what), d=shape, class_="named")


def _middle(row: int, height: float) -> float:
    return _TOP + (row + 0.5) * height


def _scale(chart: HeatMap, top: float, width: float) -> str:
    """The shades from nothing to the most."""
    parts = [text("0", 0.0, top + 17)]
    for level in range(len(HEAT)):
        left = 14.0 + level * _SCALE_BOX
        parts.append(rectangle(left, top + 6, _SCALE_BOX, 13.0, class_=f"heat-{level}"))
    most = f"{amount(chart.full, chart.unit)} and more"
    left = 20.0 + len(HEAT) * _SCALE_BOX
    parts.append(text(shortened(most, width - left), left, top + 17))
    return "".join(parts)

"""Heat maps: all cells of one shade are one path."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from stallscope.arrays.types import Ints
from stallscope.formatting.numbers import amount, finite

from .. import HEAT
from ..axis import BOLD, Axis, shortened, text_width
from ..heat_map import HeatMap, stretches
from .markup import (
    AXIS_HEIGHT,
    PixelAxis,
    coordinate,
    element,
    horizontal,
    line,
    rectangle,
    text,
    tooltip,
)

_TOP = 4.0
# The height of labels above the cells: starts of epochs, and changes.
_LABEL_LINE = 16.0
# The width of marks next to rows that stand out.
_MARKS = 16.0
# The largest share of the width for labels.
_LABELS = 0.3
# The width of a shade in the scale of colours, and the scale's height.
_SHADE, _SCALE = 20.0, 30.0
# From a row's middle to the foot of its label.
_FOOT = 4.5


def draw_heat_map(chart: HeatMap, width: float) -> tuple[list[str], float]:
    """Draw a heat map into a width; return the markup and its height."""
    drawn = _HeatMap.within(chart, width)
    parts = [*drawn.cells(), *drawn.holes(), *drawn.sides(), *drawn.tooltips()]
    parts += [*drawn.epochs(), *drawn.changes(), horizontal(drawn.x, drawn.bottom, drawn.bottom)]
    parts.append(_scale(chart, drawn.bottom + AXIS_HEIGHT, width))
    return parts, drawn.bottom + AXIS_HEIGHT + _SCALE


@dataclass(frozen=True)
class _HeatMap:
    """A heat map between its left and right end, below ``top``."""

    chart: HeatMap
    x: PixelAxis
    top: float

    @classmethod
    def within(cls, chart: HeatMap, width: float) -> _HeatMap:
        labels = max((text_width(row.label) for row in chart.rows), default=0.0) * BOLD + 10
        axis = Axis.over(float(chart.edges[0]), float(chart.edges[-1]), chart.x_label)
        lines = bool(chart.marks) + bool(chart.changes)
        x = PixelAxis(axis, min(labels, width * _LABELS), width - _MARKS)
        return cls(chart, x, _TOP + lines * _LABEL_LINE)

    @property
    def bottom(self) -> float:
        return self.top + self.chart.row_height * len(self.chart.rows)

    def middle(self, row: int) -> float:
        return self.top + (row + 0.5) * self.chart.row_height

    def cells(self) -> Iterator[str]:
        """Draw each shade's cells as thick strokes of one path."""
        edges = [coordinate(round(self.x.at(edge), 1)) for edge in self.chart.edges.tolist()]
        shapes: dict[int, list[str]] = {}
        for row, levels in enumerate(_levels(self.chart).tolist()):
            middle, at = coordinate(self.middle(row)), 0
            for level, same in groupby(levels):
                end = at + len(list(same))
                shapes.setdefault(level, []).append(f"M{edges[at]} {middle}H{edges[end]}")
                at = end
        for level, strokes in sorted(shapes.items()):
            style = "unmeasured" if level < 0 else f"heat-{level}"
            yield element(
                "path",
                d="".join(strokes),
                class_=f"cells {style}",
                stroke_width=self.chart.row_height,
            )

    def holes(self) -> Iterator[str]:
        """Draw a thin line through cells without a value, which are not zero."""
        edges = self.chart.edges.tolist()
        for row, missing in enumerate(np.isnan(self.chart.values)):
            for start, end in stretches(missing):
                middle = self.middle(row)
                yield line(
                    self.x.at(edges[start]), middle, self.x.at(edges[end]), middle, class_="hole"
                )

    def sides(self) -> Iterator[str]:
        """Write the labels that fit before the rows, and marks after emphasised ones."""
        left, right = self.x.start - 8, self.x.end + 3
        for at in self.chart.labelled_rows:
            row = self.chart.rows[at]
            style = "strong" if row.emphasised else None
            label, foot = shortened(row.label, left), self.middle(at) + _FOOT
            yield text(label, left, foot, text_anchor="end", class_=style)
        for at, row in enumerate(self.chart.rows):
            if row.emphasised:
                yield text("◀", right, self.middle(at) + _FOOT, class_="named")

    def tooltips(self) -> Iterator[str]:
        """Describe the row under the pointer, and its largest value."""
        chart, width = self.chart, self.x.end - self.x.start
        for at, row in enumerate(chart.rows):
            largest = finite(float(np.nanmax(chart.most[at], initial=-np.inf)))
            hover = [f"{row.label} on {row.group}" if row.group else row.label]
            if largest is not None:
                place = int(np.nanargmax(chart.most[at]))
                where = f"{chart.x_label} {chart.most_at[at, place]:,.0f}"
                rank = f"rank {chart.most_of[at, place]:.0f}"
                hover.append(f"{amount(largest, chart.unit)} at most: {rank} at {where}")
            top = self.top + at * chart.row_height
            yield rectangle(
                self.x.start, top, width, float(chart.row_height), tooltip(*hover), class_="clear"
            )

    def epochs(self) -> Iterator[str]:
        """Draw lines where epochs start, with the names that fit."""
        yield from self._lines(self.chart.marks, "mark", _TOP, "tick")

    def changes(self) -> Iterator[str]:
        """Draw lines where values change for good, with the labels that fit."""
        above = _LABEL_LINE if self.chart.marks else 0.0
        yield from self._lines(self.chart.changes, "change", _TOP + above, "strong")

    def _lines(
        self, marks: Sequence[tuple[float, str]], style: str, top: float, label_style: str
    ) -> Iterator[str]:
        free = 0.0
        for at, label in marks:
            if not self.x.holds(at):
                continue
            place, wide = self.x.at(at), text_width(label)
            yield line(place, self.top, place, self.bottom, class_=style)
            left = min(place, self.x.end + _MARKS - wide)
            if left >= free:
                yield text(label, left, top + 9, class_=label_style)
                free = left + wide + 12


def _levels(chart: HeatMap) -> Ints:
    """Return the shade of every cell; −1 where nothing was measured."""
    span = chart.full - chart.least
    share = (chart.values - chart.least) / (span if span > 0 else 1.0)
    levels = np.clip(np.rint(np.nan_to_num(share) * (len(HEAT) - 1)), 0, len(HEAT) - 1)
    return np.where(np.isnan(share), -1, levels).astype(np.int64)


def _scale(chart: HeatMap, top: float, width: float) -> str:
    """Draw the shades between the values of the weakest and the strongest one."""
    least, most, foot = chart.least_shown, chart.most_shown, top + 17
    left = text_width(least) + 8
    shade = min(_SHADE, (width - left - text_width(most) - 8) / len(HEAT))
    parts = [text(least, 0.0, foot)]
    for level in range(len(HEAT)):
        style = f"shade heat-{level}"
        parts.append(rectangle(left + level * shade, top + 6, shade, 13.0, class_=style))
    parts.append(text(most, left + len(HEAT) * shade + 8, foot))
    return "".join(parts)

"""List the marks of a chart other than colours: lines, triangles, whiskers, paler bars."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np

from stallscope.formatting.numbers import significant

from .area import areas_of
from .charts import Chart
from .compared_bars import ComparedBars
from .curves import EfficiencyLines, OverRuns
from .gains import GainBars
from .heat_map import HeatMap
from .kinds import StackedArea, StackedBars, Waterfall
from .over_time import OverTime
from .rates import RateBars
from .rows import waterfall_axis

#: The shapes of marks; both drawings have a sample of each.
Shape = Literal[
    "line",
    "dashes",
    "across",
    "change",
    "pause",
    "beyond",
    "whisker",
    "pale",
    "projected",
    "saved",
    "band",
    "named",
    "hole",
    "cut",
]
_WHISKER: tuple[Shape, str] = ("whisker", "95% interval")


def marks_of(chart: Chart) -> list[tuple[Shape, str]]:
    """List a chart's marks with their meanings."""
    return [*_marks(chart)]


def _marks(chart: Chart) -> Iterator[tuple[Shape, str]]:
    if isinstance(chart, StackedArea):
        yield from _of_area(chart)
    elif isinstance(chart, StackedBars):
        if any(bar.emphasised for bar in chart.bars):
            yield "band", chart.emphasis
    elif isinstance(chart, HeatMap):
        yield from _of_heat_map(chart)
    elif isinstance(chart, OverTime):
        yield "line", "mean"
    else:
        yield from _of_means(chart)


def _of_area(chart: StackedArea) -> Iterator[tuple[Shape, str]]:
    if chart.windows is not None:
        yield "dashes", f"95th percentile of {chart.windows.length:,} steps"
        yield "line", "median"
    if chart.changes:
        yield "change", "lasting change"
    if chart.pauses:
        yield "pause", "validation or checkpoint"
    if areas_of(chart).peaks:
        yield "beyond", "beyond the axis"


def _of_heat_map(chart: HeatMap) -> Iterator[tuple[Shape, str]]:
    if chart.changes:
        yield "change", "lasting change"
    if any(row.emphasised for row in chart.rows):
        yield "named", "straggler"
    if np.isnan(chart.values).any():
        yield "hole", "not measured"


def _of_means(
    chart: Waterfall | ComparedBars | GainBars | RateBars | EfficiencyLines | OverRuns,
) -> Iterator[tuple[Shape, str]]:
    if isinstance(chart, Waterfall):
        means = [segment.ci95 for segment in chart.changes]
        if any(segment.value < 0 for segment in chart.changes):
            yield "saved", "shorter"
        axis = waterfall_axis(chart)
        if axis.low > 0:
            yield "cut", f"the axis starts at {significant(axis.low)} {axis.unit}"
    elif isinstance(chart, GainBars):
        means = [bar.saved_ms.ci95 for bar in chart.bars]
        if any(bar.bound for bar in chart.bars):
            yield "pale", "at most: an upper bound"
    elif isinstance(chart, RateBars):
        means = [column.mean.ci95 for bar in chart.bars for column in bar.columns]
        if any(bar.ideal is not None for bar in chart.bars):
            yield "across", "ideal"
        if any(bar.projected for bar in chart.bars):
            yield "projected", "projected"
        if chart.beyond:
            yield "beyond", "beyond the axis"
    elif isinstance(chart, EfficiencyLines):
        means = [mean.ci95 for line in chart.lines for _, mean in line.points]
    elif isinstance(chart, OverRuns):
        means = [dot.mean.ci95 for dot in chart.dots if dot.mean is not None]
        if chart.levels:
            yield "dashes", chart.level
    else:
        means = [mean.ci95 for _, group in chart.groups for mean in group if mean is not None]
    if any(means):
        yield _WHISKER

"""The marks of a chart other than colours, and the layout of charts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal

import numpy as np

from stallscope.formatting.numbers import NOT_MEASURED, finite, significant
from stallscope.text.vocabulary import title_of

from .axis import Areas, areas_of
from .chart_kinds import StackedArea, StackedBars, Waterfall
from .charts import Chart
from .compared_bars import ComparedBars
from .curves import Curves, EfficiencyLines, OverRuns, efficiency_curves, run_curves
from .heat_map import HeatMap
from .rows import (
    GainBars,
    Rows,
    compared_rows,
    gain_rows,
    stacked_rows,
    waterfall_axis,
    waterfall_rows,
)
from .scaling_curves import RATE_LEGEND, RateBars
from .step_time import OverTime

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

#: The layouts that both drawings can draw.
Layout = Rows | Curves | Areas | RateBars | HeatMap | OverTime
_KINDS: dict[type, Callable[[Any], Layout]] = {
    StackedBars: stacked_rows,
    Waterfall: waterfall_rows,
    ComparedBars: compared_rows,
    GainBars: gain_rows,
    StackedArea: areas_of,
    OverRuns: run_curves,
    EfficiencyLines: efficiency_curves,
}


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


# -- The layout of every kind of chart, and the legend of its colours -----------------------------


def layout_of(chart: Chart) -> Layout:
    """Lay a chart out.

    Raises:
        TypeError: if it is not a chart.
    """
    # Some charts are their own layout.
    if isinstance(chart, Layout):
        return chart
    lay_out = _KINDS.get(type(chart))
    if lay_out is None:
        raise TypeError(f"no way to draw a {type(chart).__name__}")
    return lay_out(chart)


def legend_of(chart: Chart) -> list[tuple[str, str]]:
    """List names of the palette with labels, and with figures for a single bar.

    Without figures, parts that are zero in all bars or steps have no colour to explain.
    """
    if isinstance(chart, RateBars):
        return list(RATE_LEGEND)
    if isinstance(chart, StackedArea):
        return [(name, title_of(name)) for name, values in chart.layers if (values > 0).any()]
    if isinstance(chart, StackedBars):
        return _figures(chart) if len(chart.bars) == 1 else _names(chart)
    return []


def _names(chart: StackedBars) -> list[tuple[str, str]]:
    drawn = {
        segment.name
        for bar, printed in zip(chart.bars, chart.printed, strict=True)
        for segment, part in zip(bar.segments, printed.parts, strict=True)
        if part
    }
    return [(name, title_of(name)) for name in chart.names if name in drawn]


def _figures(chart: StackedBars) -> list[tuple[str, str]]:
    (bar,), (printed,) = chart.bars, chart.printed
    entries = []
    for segment, part in zip(bar.segments, printed.parts, strict=True):
        measured = finite(segment.value) is not None
        figure = printed.amount(part, segment.ci95) if measured else NOT_MEASURED
        entries.append((segment.name, f"{title_of(segment.name)} {figure}"))
    return entries

"""The layout of every kind of chart, and the legend of its colours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stallscope.formatting.numbers import NOT_MEASURED, finite
from stallscope.text.titles import title_of

from .area import Areas, areas_of
from .charts import Chart
from .compared_bars import ComparedBars
from .curves import Curves, EfficiencyLines, OverRuns, efficiency_curves, run_curves
from .gains import GainBars
from .heat_map import HeatMap
from .kinds import StackedArea, StackedBars, Waterfall
from .over_time import OverTime
from .rates import RATE_LEGEND, RateBars
from .rows import Rows, compared_rows, gain_rows, stacked_rows, waterfall_rows

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


def layout_of(chart: Chart | Layout) -> Layout:
    """Lay a chart out, once for all its drawings; a layout is returned as it is.

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

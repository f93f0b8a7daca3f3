"""The layout of every kind of chart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .area import Areas, areas_of
from .charts import Chart, StackedArea, StackedBars, Waterfall
from .compared_bars import ComparedBars
from .curves import Curves, efficiency_curves, run_curves
from .heat_map import HeatMap
from .over_runs import OverRuns
from .over_time import OverTime
from .rates import EfficiencyLines, RateBars
from .rows import Rows, compared_rows, stacked_rows, waterfall_rows

#: What both drawings know how to draw.
Layout = Rows | Curves | Areas | RateBars | HeatMap | OverTime

_KINDS: dict[type, Callable[[Any], Layout]] = {
    StackedBars: stacked_rows,
    Waterfall: waterfall_rows,
    ComparedBars: compared_rows,
    StackedArea: areas_of,
    OverRuns: run_curves,
    EfficiencyLines: efficiency_curves,
}


def layout_of(chart: Chart) -> Layout:
    """Lay a chart out, once for both drawings.

    Raises:
        TypeError: if it is no chart.
    """
    if isinstance(chart, RateBars | HeatMap | OverTime):
        # These are their own layout.
        return chart
    lay_out = _KINDS.get(type(chart))
    if lay_out is None:
        raise TypeError(f"no way to draw a {type(chart).__name__}")
    return lay_out(chart)

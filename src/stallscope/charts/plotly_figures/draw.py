"""One function for all kinds of charts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import plotly.graph_objects as go

from ..charts import Chart, StackedArea, StackedBars, Waterfall
from ..compared_bars import ComparedBars
from ..heat_map import HeatMap
from ..over_runs import OverRuns
from ..over_time import OverTime
from ..rates import EfficiencyLines, RateBars
from .area import draw_area
from .bars import draw_bars
from .compared_bars import draw_compared_bars
from .efficiency_lines import draw_efficiency_lines
from .heat_map import draw_heat_map
from .look import Look, layout
from .over_runs import draw_over_runs
from .over_time import draw_over_time
from .rate_bars import draw_rate_bars
from .waterfall import draw_waterfall

#: For ``Figure.show(config=CONFIG)`` and ``dcc.Graph``: no logo, and nothing that sends data anywhere.
CONFIG: dict[str, Any] = {
    "displaylogo": False,
    "showSendToCloud": False,
    "showEditInChartStudio": False,
    "plotlyServerURL": "",
    "modeBarButtonsToRemove": ["zoom2d", "pan2d", "select2d", "lasso2d", "autoScale2d"],
    "responsive": True,
}

_LEGEND_HEIGHT = 30

_KINDS: dict[type, Callable[[Any, go.Figure, Look], None]] = {
    StackedBars: draw_bars,
    StackedArea: draw_area,
    Waterfall: draw_waterfall,
    HeatMap: draw_heat_map,
    ComparedBars: draw_compared_bars,
    RateBars: draw_rate_bars,
    EfficiencyLines: draw_efficiency_lines,
    OverRuns: draw_over_runs,
    OverTime: draw_over_time,
}


def figure(chart: Chart, *, dark: bool, legend: bool = True) -> go.Figure:
    """Draw a chart for a light or a dark page.

    The background is transparent and the width the container's; the height is in ``layout.height``,
    pixels. Texts are escaped: Plotly takes some HTML in labels for markup.

    Args:
        chart: what to draw.
        dark: whether the page is dark.
        legend: whether the picture names its colours itself.
    """
    draw = _KINDS.get(type(chart))
    if draw is None:
        raise TypeError(f"no way to draw a {type(chart).__name__}")
    look = Look(dark)
    drawn = go.Figure(layout=layout(look))
    draw(chart, drawn, look)
    if legend and drawn.layout.showlegend is None:
        drawn.layout.height += _LEGEND_HEIGHT
        drawn.layout.margin.t += _LEGEND_HEIGHT
    else:
        drawn.layout.showlegend = False
    if isinstance(chart, HeatMap):
        drawn.layout.coloraxis.showscale = legend
    return drawn

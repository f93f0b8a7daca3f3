"""Draw any kind of chart as a Plotly figure, for the dashboard and for notebooks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import plotly.graph_objects as go

from ..axis import Areas
from ..charts import Chart
from ..curves import Curves
from ..heat_map import HeatMap
from ..marks import layout_of
from ..rows import Rows
from ..scaling_curves import RateBars
from ..step_time import OverTime
from .plotly_curves import draw_area, draw_curves, draw_over_time
from .plotly_heat_map import draw_heat_map
from .plotly_parts import Drawing, empty
from .plotly_rows import draw_rate_bars, draw_rows

__all__ = ["CONFIG", "draw", "figure"]

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

_KINDS: dict[type, Callable[[Any, Drawing], None]] = {
    Rows: draw_rows,
    Areas: draw_area,
    Curves: draw_curves,
    HeatMap: draw_heat_map,
    OverTime: draw_over_time,
    RateBars: draw_rate_bars,
}


def figure(chart: Chart, *, dark: bool, legend: bool = True) -> go.Figure:
    """Draw a chart as a Plotly figure, for a light or a dark page; see ``draw``."""
    drawn = draw(chart, legend=legend)
    traces, layout = drawn.coloured(lambda colour: colour.dark if dark else colour.light)
    return go.Figure(traces, {**layout, "template": "none"})


def draw(chart: Chart, *, legend: bool = True) -> Drawing:
    """Draw a chart once for light and dark pages.

    The background is transparent and the width the container's; the height is in ``layout["height"]``,
    pixels. Texts are escaped: Plotly takes some HTML in labels for markup.

    Args:
        chart: the chart.
        legend: whether the figure has its own legend.

    Raises:
        TypeError: if it is not a chart.
    """
    laid_out = layout_of(chart)
    drawn = empty()
    _KINDS[type(laid_out)](laid_out, drawn)
    layout = drawn.layout
    if legend and "showlegend" not in layout:
        drawn.update(
            height=layout["height"] + _LEGEND_HEIGHT,
            margin={"t": layout["margin"]["t"] + _LEGEND_HEIGHT},
        )
    else:
        drawn.update(showlegend=False)
    if isinstance(laid_out, HeatMap):
        drawn.update(coloraxis={"showscale": legend})
    return drawn

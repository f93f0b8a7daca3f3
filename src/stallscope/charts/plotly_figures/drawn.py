"""Draw any kind of chart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import plotly.graph_objects as go

from ..axis import Areas
from ..charts import Chart
from ..curves import Curves
from ..heat_map import HeatMap
from ..marks import Layout, layout_of
from ..rows import Rows
from ..scaling_curves import RateBars
from ..step_time import OverTime
from .plotly_curves import draw_area, draw_curves, draw_over_time
from .plotly_heat_map import draw_heat_map
from .plotly_rows import draw_rate_bars, draw_rows
from .theme import Drawing, Theme, empty

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

_KINDS: dict[type, Callable[[Any, Drawing, Theme], None]] = {
    Rows: draw_rows,
    Areas: draw_area,
    Curves: draw_curves,
    HeatMap: draw_heat_map,
    OverTime: draw_over_time,
    RateBars: draw_rate_bars,
}


def figure(chart: Chart, *, dark: bool, legend: bool = True) -> go.Figure:
    """Draw a chart as a Plotly figure; see ``draw``."""
    drawn = draw(chart, dark=dark, legend=legend)
    return go.Figure(drawn.traces, {**drawn.layout, "template": "none"})


def draw(chart: Chart | Layout, *, dark: bool, legend: bool = True) -> Drawing:
    """Draw a chart for a light or a dark page.

    The background is transparent and the width the container's; the height is in ``layout["height"]``,
    pixels. Texts are escaped: Plotly takes some HTML in labels for markup.

    Args:
        chart: the chart, or its layout if it is drawn more than once.
        dark: whether the page is dark.
        legend: whether the figure has its own legend.

    Raises:
        TypeError: if it is not a chart.
    """
    laid_out = layout_of(chart)
    theme = Theme(dark)
    drawn = empty(theme)
    _KINDS[type(laid_out)](laid_out, drawn, theme)
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

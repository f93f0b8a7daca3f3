"""A chart as a card: its title, its sentence, its colours by name, and the picture."""

from __future__ import annotations

from typing import Any

import dash_mantine_components as dmc
from dash import MATCH, ClientsideFunction, Dash, Input, Output, State

from stallscope.charts.charts import Chart, StackedArea, StackedBars
from stallscope.charts.heat_map import HeatMap
from stallscope.charts.plotly_figures import CONFIG, figure
from stallscope.charts.rates import RateBars

from .chart_csv import chart_csv
from .heat_legend import heat_legend
from .picture_card import picture_card
from .swatch import labelled_swatch, named_swatch

#: The store in the shell with the page's theme: ``light`` or ``dark``.
COLOUR_SCHEME = "colour-scheme"


def chart_card(name: str, chart: Chart, tools: Any = None) -> Any:
    """A card with a chart; ``name`` is the chart's own on its page, ``tools`` stand above it."""
    figures = chart_figures(chart)
    return picture_card(
        name,
        chart.title,
        chart.sentence,
        figures,
        _config(chart),
        figures["light"].layout.height,
        above=[tools, _legend(chart)],
        role="figure" if _zooms(chart) else "img",
    )


def chart_figures(chart: Chart) -> dict[str, Any]:
    """What the browser needs of a chart: its figures for light and dark, and its numbers."""
    # Only the browser knows whether the page is light or dark: it gets both and takes one.
    figures: dict[str, Any] = {
        scheme: figure(chart, dark=scheme == "dark", legend=False) for scheme in ("light", "dark")
    }
    if isinstance(chart, HeatMap):
        # Its many cells are the same in both: they go over the wire once.
        figures["dark"] = {"layout": figures["dark"].layout.to_plotly_json()}
    return {**figures, "csv": chart_csv(chart)}


def add_chart_callbacks(app: Dash) -> None:
    """Let every chart card of an app show the figure for its colour scheme, and keep its view."""
    app.clientside_callback(  # type: ignore[no-untyped-call]
        ClientsideFunction("stallscope", "figureFor"),
        Output({"type": "chart", "name": MATCH}, "figure"),
        Input(COLOUR_SCHEME, "data"),
        Input({"type": "chart-figures", "name": MATCH}, "data"),
        State({"type": "chart-figures", "name": MATCH}, "id"),
    )
    app.clientside_callback(  # type: ignore[no-untyped-call]
        ClientsideFunction("stallscope", "keepView"),
        Input({"type": "chart", "name": MATCH}, "relayoutData"),
        State({"type": "chart-figures", "name": MATCH}, "id"),
    )


def _config(chart: Chart) -> Any:
    config = {**CONFIG, "displayModeBar": "hover" if _zooms(chart) else False}
    # The card itself has a button for pictures. Dragging zooms heat maps, or moves what is shown.
    moving = [] if isinstance(chart, HeatMap) else ["zoom2d", "pan2d"]
    config["modeBarButtonsToRemove"] = [*moving, "select2d", "lasso2d", "autoScale2d", "toImage"]
    return config


def _zooms(chart: Chart) -> bool:
    return isinstance(chart, StackedArea | HeatMap)


def _legend(chart: Chart) -> Any:
    if isinstance(chart, HeatMap):
        return heat_legend(chart)
    if isinstance(chart, RateBars):
        kinds = (("steps", "steady steps"), ("startup", "whole job"))
        swatches = [labelled_swatch(name, label) for name, label in kinds]
        return dmc.Group(swatches, gap="md", className="legend")
    # Not Plotly's own: that one takes its room from the picture where lines are short.
    if isinstance(chart, StackedBars):
        segments = (segment.name for bar in chart.bars for segment in bar.segments)
    elif isinstance(chart, StackedArea):
        segments = (name for name, _ in chart.layers)
    else:
        return None
    names = list(dict.fromkeys(segments))
    return dmc.Group([named_swatch(name) for name in names], gap="md", className="legend")

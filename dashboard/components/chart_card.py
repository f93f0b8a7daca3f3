"""A chart as a card: its title, its sentence, its colours by name, and the picture."""

from __future__ import annotations

from typing import Any

import dash_mantine_components as dmc
from dash import MATCH, ClientsideFunction, Dash, Input, Output, dcc, html

from stallscope.pictures.charts import Chart, StackedArea, StackedBars
from stallscope.pictures.heat_map import HeatMap
from stallscope.pictures.plotly_figures import CONFIG, figure
from stallscope.pictures.rates import RateBars

from .aria import aria
from .heat_legend import heat_legend
from .swatch import labelled_swatch, named_swatch

#: The store in the shell that says whether the page is ``light`` or ``dark``.
COLOUR_SCHEME = "colour-scheme"

_EMPTY = {
    "data": [],
    "layout": {
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "xaxis": {"visible": False},
        "yaxis": {"visible": False},
    },
}


def chart_card(name: str, chart: Chart) -> Any:
    """A card with a chart; ``name`` is the chart's own on its page."""
    # Only the browser knows whether the page is light or dark: it gets both and takes one.
    figures: dict[str, Any] = {
        scheme: figure(chart, dark=scheme == "dark", legend=False) for scheme in ("light", "dark")
    }
    height = figures["light"].layout.height
    if isinstance(chart, HeatMap):
        # Its many cells are the same in both: they go over the wire once.
        figures["dark"] = {"layout": figures["dark"].layout.to_plotly_json()}
    return dmc.Card(
        [
            dmc.Title(chart.title, order=2, size="h4"),
            dmc.Text(chart.sentence, c="dimmed", size="sm"),
            _legend(chart),
            html.Div(
                dcc.Graph(
                    id={"type": "chart", "name": name},
                    figure=_EMPTY,
                    config=_config(chart),
                    responsive=True,
                    style={"height": f"{height}px"},
                ),
                # What is an image has no buttons inside.
                role="figure" if _zooms(chart) else "img",
                **aria(label=f"{chart.title}. {chart.sentence}"),
            ),
            dcc.Store(id={"type": "chart-figures", "name": name}, data=figures),
        ],
        withBorder=True,
        h="100%",
    )


def add_chart_callbacks(app: Dash) -> None:
    """Let every chart card of an app show the figure for its colour scheme."""
    app.clientside_callback(  # type: ignore[no-untyped-call]
        ClientsideFunction("stallscope", "figureFor"),
        Output({"type": "chart", "name": MATCH}, "figure"),
        Input(COLOUR_SCHEME, "data"),
        Input({"type": "chart-figures", "name": MATCH}, "data"),
    )


def _config(chart: Chart) -> Any:
    config = {**CONFIG, "displayModeBar": "hover" if _zooms(chart) else False}
    if isinstance(chart, HeatMap):
        # Dragging zooms there, or moves what is shown.
        config["modeBarButtonsToRemove"] = ["select2d", "lasso2d", "autoScale2d"]
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

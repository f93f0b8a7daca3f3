"""A chart as a card: its title, its sentence, its colours by name, and the picture."""

from __future__ import annotations

from typing import Any

import dash_mantine_components as dmc
from dash import MATCH, ClientsideFunction, Dash, Input, Output, dcc, html

from stallscope.pictures.charts import Chart, StackedArea, StackedBars
from stallscope.pictures.plotly_figures import CONFIG, figure

from .aria import aria
from .swatch import named_swatch

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
    figures = {
        scheme: figure(chart, dark=scheme == "dark", legend=False) for scheme in ("light", "dark")
    }
    height = figures["light"].layout.height
    config: Any = {**CONFIG, "displayModeBar": "hover" if _zooms(chart) else False}
    return dmc.Card(
        [
            dmc.Title(chart.title, order=2, size="h4"),
            dmc.Text(chart.sentence, c="dimmed", size="sm"),
            _legend(chart),
            html.Div(
                dcc.Graph(
                    id={"type": "chart", "name": name},
                    figure=_EMPTY,
                    config=config,
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


def _zooms(chart: Chart) -> bool:
    return isinstance(chart, StackedArea)


def _legend(chart: Chart) -> Any:
    # Not Plotly's own: that one takes its room from the picture where lines are short.
    if isinstance(chart, StackedBars):
        segments = (segment.name for bar in chart.bars for segment in bar.segments)
    elif isinstance(chart, StackedArea):
        segments = (name for name, _ in chart.layers)
    else:
        return None
    names = list(dict.fromkeys(segments))
    return dmc.Group([named_swatch(name) for name in names], gap="md", className="legend")

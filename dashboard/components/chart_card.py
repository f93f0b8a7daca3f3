"""A chart as a card: title, buttons that save it, sentence, legend, and the chart itself."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import dash_mantine_components as dmc
from dash import MATCH, Dash, Input, Output, State, dcc, html

from stallscope.charts import HEAT
from stallscope.charts.chart_kinds import StackedArea
from stallscope.charts.charts import Chart
from stallscope.charts.heat_map import HeatMap
from stallscope.charts.marks import Shape, legend_of, marks_of
from stallscope.charts.plotly_figures import CONFIG, draw
from stallscope.charts.plotly_figures.plotly_parts import Drawing, empty

from .basics import add_script, aria, labelled_swatch
from .chart_csv import Row, chart_csv, csv_text

#: The store in the shell with the page's theme: ``light`` or ``dark``.
COLOUR_SCHEME = "colour-scheme"
_CUSTOM_HEIGHT = 260
# The card has a button that saves it.
_NO_BUTTONS = ["select2d", "lasso2d", "autoScale2d", "toImage"]
_TRANSPARENT = "rgba(0,0,0,0)"
_EMPTY: dict[str, Any] = {
    "data": [],
    "layout": {
        "paper_bgcolor": _TRANSPARENT,
        "plot_bgcolor": _TRANSPARENT,
        "xaxis": {"visible": False},
        "yaxis": {"visible": False},
    },
}
_KINDS = (
    ("png", "PNG", "Save as PNG: the chart as shown"),
    ("svg", "SVG", "Save as SVG: the chart as shown, at any size"),
    ("csv", "CSV", "Save as CSV: its numbers"),
)

# Marks that are characters; the stylesheet draws the others.
_SAMPLES: dict[Shape, str] = {"pause": "△", "beyond": "▲", "named": "◀", "cut": "//"}


def picture(name: str, chart: Chart | None, *tables: Any) -> Any:
    """Make a card with a chart and its folded tables; without a chart, with the tables alone.

    None without both.
    """
    if chart is not None:
        return chart_card(name, chart, below=tables)
    shown = [table for table in tables if table is not None]
    return dmc.Card(html.Div(shown), withBorder=True) if shown else None


def chart_card(name: str, chart: Chart | None, tools: Any = None, below: Sequence[Any] = ()) -> Any:
    """Make a card with a chart; None without one.

    Args:
        name: unique on its page.
        chart: the chart.
        tools: components above the chart.
        below: components below the chart.
    """
    if chart is None:
        return None
    zooms = isinstance(chart, StackedArea | HeatMap)
    # Dragging zooms heat maps, or moves the view.
    moving = [] if isinstance(chart, HeatMap) else ["zoom2d", "pan2d"]
    return _card(
        name,
        (chart.title, chart.sentence),
        chart_figure(chart),
        {
            "displayModeBar": "hover" if zooms else False,
            "modeBarButtonsToRemove": [*moving, *_NO_BUTTONS],
        },
        above=[tools, chart_legend(chart)],
        below=below,
        # An element with the role of an image contains no buttons.
        role="figure" if zooms else "img",
    )


def custom_chart_card(
    name: str,
    title: str,
    sentence: str,
    drawn: Drawing,
    numbers: tuple[Sequence[str], Sequence[Row]],
    *below: Any,
) -> Any:
    """Make a card with a chart that only one page has.

    Args:
        name: unique on its page.
        title: of the card.
        sentence: a description of the chart.
        drawn: the chart, from ``custom_drawing``.
        numbers: its numbers as a table: the head, with units, and the rows.
        below: components below the chart.
    """
    return _card(
        name,
        (title, sentence),
        {**drawn.plain(), "csv": csv_text(*numbers)},
        {"displayModeBar": False},
        below=below,
    )


def custom_drawing() -> Drawing:
    """Make the drawing that a chart of only one page starts from."""
    drawn = empty()
    drawn.update(
        height=_CUSTOM_HEIGHT,
        showlegend=False,
        margin={"b": 48},
        xaxis={"fixedrange": True},
        yaxis={"fixedrange": True, "rangemode": "tozero"},
    )
    return drawn


def chart_figure(chart: Chart) -> dict[str, Any]:
    """Return a chart's data for the browser: its figure and its numbers."""
    return {**draw(chart, legend=False).plain(), "csv": chart_csv(chart)}


def add_chart_callbacks(app: Dash) -> None:
    """Let every chart card of an app show its figure in the page's colours, and keep its view."""
    add_script(
        app,
        "stallscope.figureFor",
        Output({"type": "chart", "name": MATCH}, "figure"),
        Input(COLOUR_SCHEME, "data"),
        Input({"type": "chart-figure", "name": MATCH}, "data"),
        State({"type": "chart-figure", "name": MATCH}, "id"),
    )
    add_script(
        app,
        "stallscope.keepView",
        Input({"type": "chart", "name": MATCH}, "relayoutData"),
        State({"type": "chart-figure", "name": MATCH}, "id"),
    )


def _card(
    name: str,
    texts: tuple[str, str],
    figure: dict[str, Any],
    config: dict[str, Any],
    *,
    above: Sequence[Any] = (),
    below: Sequence[Any] = (),
    role: str = "img",
) -> Any:
    title, sentence = texts
    whole_config: Any = {**CONFIG, **config}
    graph = dcc.Graph(
        id={"type": "chart", "name": name},
        figure=_EMPTY,
        config=whole_config,
        responsive=True,
        style={"height": f"{figure['layout']['height']}px"},
    )
    return dmc.Card(
        [
            chart_head(title, name),
            dmc.Text(sentence, c="dimmed", size="sm"),
            *above,
            html.Div(graph, role=role, **aria(label=f"{title}. {sentence}")),
            dcc.Store(id={"type": "chart-figure", "name": name}, data=figure),
            # A block of its own: folded tables stand in a row.
            html.Div(list(below)) if any(part is not None for part in below) else None,
        ],
        withBorder=True,
        h="100%",
        className="chart-card",
    )


def chart_head(title: str, name: str) -> Any:
    """Make a chart's title with its buttons; ``name`` is unique on its page."""
    return html.Div(
        [dmc.Title(title, order=2, size="h4"), _save_buttons(title, name)], className="chart-head"
    )


def _save_buttons(title: str, name: str) -> Any:
    """Make the buttons of a chart; ``name`` is unique on its page."""
    buttons = []
    for kind, words, label in _KINDS:
        data = {"data-save": kind, "data-chart": name, **aria(label=label.partition(":")[0])}
        buttons.append(html.Button(words, className="save-button", title=label, **data))
    return html.Div(buttons, className="save-buttons", role="group", **aria(label=f"Save: {title}"))


# -- Legends of charts, as parts of their cards ---------------------------------------------------


def chart_legend(chart: Chart) -> Any:
    """Make a chart's legend; None without anything to explain."""
    # Not Plotly's legend, which takes space from the chart on narrow screens.
    scale = [heat_scale(chart.least_shown, chart.most_shown)] if isinstance(chart, HeatMap) else []
    colours = [labelled_swatch(name, label) for name, label in legend_of(chart)]
    marks = [_mark(shape, label) for shape, label in marks_of(chart)]
    entries = [*scale, *colours, *marks]
    return legend(entries) if entries else None


def _mark(shape: Shape, label: str) -> Any:
    sample = html.Span(_SAMPLES.get(shape, ""), className=f"sample sample-{shape}")
    return html.Span([sample, label], className="named-swatch")


def legend(entries: Iterable[Any]) -> Any:
    """Make a legend from its entries."""
    return dmc.Group(list(entries), gap="md", className="legend")


def heat_scale(least: str, most: str) -> Any:
    """Make the scale of a heat map's colours between the labels of its ends."""
    style = {"background": f"linear-gradient(to right, {', '.join(colour.css for colour in HEAT)})"}
    scale = html.Span(className="heat-scale", style=style, **aria(hidden="true"))
    return html.Span([least, scale, most], className="named-swatch")

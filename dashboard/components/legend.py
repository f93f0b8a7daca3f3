"""Legends of charts, as parts of their cards."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import dash_mantine_components as dmc
from dash import html

from stallscope.charts.charts import Chart
from stallscope.charts.heat_map import HeatMap
from stallscope.charts.layouts import legend_of
from stallscope.charts.marks import Shape, marks_of
from stallscope.charts.palette import HEAT

from .basics import aria, labelled_swatch

# Marks that are characters; the stylesheet draws the others.
_SAMPLES: dict[Shape, str] = {"pause": "△", "beyond": "▲", "named": "◀", "cut": "//"}


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
    # Both schemes' colours; the stylesheet picks one.
    style = {
        f"--{scheme}": "linear-gradient(to right, "
        f"{', '.join(getattr(colour, scheme) for colour in HEAT)})"
        for scheme in ("light", "dark")
    }
    scale = html.Span(className="heat-scale", style=style, **aria(hidden="true"))
    return html.Span([least, scale, most], className="named-swatch")

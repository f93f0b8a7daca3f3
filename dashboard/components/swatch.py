"""The colour of a stage with its name."""

from __future__ import annotations

from typing import Any

from dash import html

from stallscope.charts.charts import TITLES
from stallscope.charts.palette import COLOURS


def colours_of(name: str) -> dict[str, str]:
    """Give the stage's colours as style; the stylesheet picks the one for light or dark."""
    colour = COLOURS[name]
    return {"--light": colour.light, "--dark": colour.dark}


def named_swatch(name: str) -> Any:
    """Show a stage's colour and its title."""
    return labelled_swatch(name, TITLES[name])


def labelled_swatch(name: str, label: str) -> Any:
    """Show a stage's colour and a label."""
    return html.Span(
        [html.Span(className="swatch", style=colours_of(name)), label], className="named-swatch"
    )

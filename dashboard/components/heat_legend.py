"""What the colours of a heat map mean."""

from __future__ import annotations

from typing import Any

import dash_mantine_components as dmc
import numpy as np
from dash import html

from stallscope.charts.heat_map import HeatMap
from stallscope.charts.palette import HEAT
from stallscope.formatting.numbers import amount

from .aria import aria
from .swatch import colours_of


def heat_legend(chart: HeatMap) -> Any:
    """The scale from nothing to the most, and the signs that are there."""
    entries = [
        html.Span(
            [
                "0",
                html.Span(className="heat-scale", style=_scale(), **aria(hidden="true")),
                f"{amount(chart.full, chart.unit)} and later",
            ],
            className="named-swatch",
        )
    ]
    if any(row.emphasised for row in chart.rows):
        mark = html.Span("◀", className="mark", style=colours_of("imbalance"))
        entries.append(html.Span([mark, "named"], className="named-swatch"))
    if np.isnan(chart.values).any():
        entries.append(
            html.Span([html.Span(className="heat-hole"), "not measured"], className="named-swatch")
        )
    return dmc.Group(entries, gap="md", className="legend")


def _scale() -> dict[str, str]:
    """Both schemes' scales; the stylesheet picks one."""
    light, dark = (
        ", ".join(getattr(colour, scheme) for colour in HEAT) for scheme in ("light", "dark")
    )
    return {
        "--light": f"linear-gradient(to right, {light})",
        "--dark": f"linear-gradient(to right, {dark})",
    }

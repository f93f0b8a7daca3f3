"""A picture of a page's own, drawn for light and dark, as a card."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dash_mantine_components as dmc
import plotly.graph_objects as go
from dash import dcc, html

from stallscope.pictures.plotly_figures import CONFIG
from stallscope.pictures.plotly_figures.look import Look, layout

from .aria import aria

_TRANSPARENT = "rgba(0,0,0,0)"
_EMPTY = {"layout": {"paper_bgcolor": _TRANSPARENT, "plot_bgcolor": _TRANSPARENT}}
_HEIGHT = 260
_CONFIG: Any = {**CONFIG, "displayModeBar": False}


def drawn_card(
    name: str, title: str, sentence: str, draw: Callable[[go.Figure, Look], None], *more: Any
) -> Any:
    """A card with a picture; ``name`` is the picture's own on its page, ``more`` stands below it."""
    figures = {scheme: _figure(draw, dark=scheme == "dark") for scheme in ("light", "dark")}
    return dmc.Card(
        [
            dmc.Title(title, order=2, size="h4"),
            dmc.Text(sentence, c="dimmed", size="sm"),
            html.Div(
                dcc.Graph(
                    id={"type": "chart", "name": name},
                    figure=_EMPTY,
                    config=_CONFIG,
                    responsive=True,
                    style={"height": f"{_HEIGHT}px"},
                ),
                role="img",
                **aria(label=f"{title}. {sentence}"),
            ),
            dcc.Store(id={"type": "chart-figures", "name": name}, data=figures),
            *more,
        ],
        withBorder=True,
        h="100%",
    )


def _figure(draw: Callable[[go.Figure, Look], None], *, dark: bool) -> go.Figure:
    look = Look(dark)
    drawn = go.Figure(layout=layout(look))
    drawn.update_layout(height=_HEIGHT, showlegend=False, margin_b=48)
    drawn.update_xaxes(fixedrange=True)
    drawn.update_yaxes(fixedrange=True, rangemode="tozero")
    draw(drawn, look)
    return drawn

"""A picture of a page's own, drawn for light and dark, as a card."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import plotly.graph_objects as go

from stallscope.charts.plotly_figures import CONFIG
from stallscope.charts.plotly_figures.look import Look, layout

from .chart_csv import Row, csv_text
from .picture_card import picture_card

_HEIGHT = 260
_CONFIG: Any = {**CONFIG, "displayModeBar": False}


def drawn_card(
    name: str,
    title: str,
    sentence: str,
    draw: Callable[[go.Figure, Look], None],
    numbers: tuple[Sequence[str], Sequence[Row]],
    *more: Any,
) -> Any:
    """A card with a picture.

    Args:
        name: the picture's own on its page.
        title: what it is called.
        sentence: its content.
        draw: draws it for a light or a dark page.
        numbers: what is behind it: a table's head, with units, and its rows.
        more: what stands below it.
    """
    figures = {scheme: _figure(draw, dark=scheme == "dark") for scheme in ("light", "dark")}
    return picture_card(
        name,
        title,
        sentence,
        {**figures, "csv": csv_text(*numbers)},
        _CONFIG,
        _HEIGHT,
        below=more,
    )


def _figure(draw: Callable[[go.Figure, Look], None], *, dark: bool) -> go.Figure:
    look = Look(dark)
    drawn = go.Figure(layout=layout(look))
    drawn.update_layout(height=_HEIGHT, showlegend=False, margin_b=48)
    drawn.update_xaxes(fixedrange=True)
    drawn.update_yaxes(fixedrange=True, rangemode="tozero")
    draw(drawn, look)
    return drawn

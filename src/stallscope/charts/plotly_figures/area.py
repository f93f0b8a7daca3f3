"""Stacked areas over the run."""

from __future__ import annotations

from html import escape

import numpy as np
import plotly.graph_objects as go

from ..charts import TITLES, StackedArea
from .look import HOVER, MARK, TEXT, Look, suffix

_HEIGHT = 320
#: Labels of marks side by side that can be read on a telephone.
_MOST_MARK_LABELS = 6


def draw_area(chart: StackedArea, drawn: go.Figure, look: Look) -> None:
    unit = escape(chart.unit, quote=False)
    for name, values in chart.layers:
        drawn.add_scatter(
            name=TITLES[name],
            x=chart.x,
            y=values,
            stackgroup="entries",
            mode="lines",
            line={"width": 0.5, "color": look.of(name)},
            fillcolor=look.of(name),
            hovertemplate=f"{TITLES[name]}: %{{y:.2f}} {unit}<extra></extra>",
        )
    every = -(-len(chart.marks) // _MOST_MARK_LABELS)
    for number, (at, label) in enumerate(chart.marks):
        drawn.add_vline(at, line={"width": 1, "dash": "dot", "color": look(MARK)})
        if number % every == 0:
            drawn.add_annotation(
                x=at,
                y=1,
                yref="paper",
                yanchor="bottom",
                xanchor="left",
                text=escape(label, quote=False),
                showarrow=False,
                font={"size": 11, "color": look(MARK)},
            )
    _changes(chart, drawn, look)
    _pauses(chart, drawn, look)
    if chart.rates is not None:
        # Seen under the pointer only: it has another unit.
        drawn.add_scatter(
            x=chart.x,
            y=np.zeros(len(chart.x)),
            customdata=chart.rates,
            mode="lines",
            line={"width": 0},
            showlegend=False,
            hovertemplate="Throughput: %{customdata:,.0f} samples/s<extra></extra>",
        )
    drawn.update_layout(
        height=_HEIGHT,
        hovermode="x unified",
        margin_t=24,
        legend_y=1.08,
    )
    drawn.update_xaxes(
        # Names the first tick, and every value under the pointer.
        tickprefix=f"{escape(chart.x_label, quote=False)} ",
        showtickprefix="first",
        hoverformat=",d",
        showgrid=False,
        spikecolor=look(MARK),
        spikethickness=1,
    )
    drawn.update_yaxes(ticksuffix=suffix(chart.unit), rangemode="tozero", fixedrange=True)


def _changes(chart: StackedArea, drawn: go.Figure, look: Look) -> None:
    for at, label in chart.changes:
        drawn.add_vline(at, line={"width": 2, "color": look(TEXT)})
        drawn.add_annotation(
            x=at,
            y=1,
            yref="paper",
            yanchor="top",
            xanchor="left",
            text=f"<b>{escape(label, quote=False)}</b>",
            showarrow=False,
            bgcolor=look(HOVER),
            font={"size": 12},
        )


def _pauses(chart: StackedArea, drawn: go.Figure, look: Look) -> None:
    if not chart.pauses:
        return
    drawn.add_scatter(
        x=[at for at, _ in chart.pauses],
        y=[0.0] * len(chart.pauses),
        mode="markers",
        marker={
            "symbol": "triangle-up",
            "size": 10,
            "color": look(HOVER),
            "line": {"width": 1.5, "color": look(TEXT)},
        },
        cliponaxis=False,
        showlegend=False,
        hovertext=[escape(label, quote=False) for _, label in chart.pauses],
        hovertemplate="before this step: %{hovertext}<extra></extra>",
    )

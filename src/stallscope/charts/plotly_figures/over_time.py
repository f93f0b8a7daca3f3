"""What machines measured over the run: a mean within a range."""

from __future__ import annotations

from html import escape

import plotly.graph_objects as go

from stallscope.formatting.numbers import scale_for

from ..over_time import OverTime
from .look import TEXT, Look, suffix

_HEIGHT = 220


def draw_over_time(chart: OverTime, drawn: go.Figure, look: Look) -> None:
    times = scale_for(float(chart.x[-1]), "s")
    unit = escape(chart.unit, quote=False)
    x = chart.x * times.factor
    edge = {"mode": "lines", "connectgaps": False, "showlegend": False}
    for name, values, fill in (
        ("greatest", chart.columns.high, None),
        ("least", chart.columns.low, "tonexty"),
    ):
        drawn.add_scatter(
            x=x,
            y=values,
            fill=fill,
            fillcolor=look.of("warmup"),
            line={"width": 0, "shape": "hvh", "color": look.of("warmup")},
            hovertemplate=f"{name}: %{{y:.1f}} {unit}<extra></extra>",
            **edge,
        )
    drawn.add_scatter(
        x=x,
        y=chart.columns.mean,
        line={"width": 2, "shape": "hvh", "color": look(TEXT)},
        hovertemplate=f"mean: %{{y:.1f}} {unit}<extra></extra>",
        **edge,
    )
    drawn.update_layout(height=_HEIGHT, hovermode="x unified", showlegend=False)
    drawn.update_xaxes(
        ticksuffix=suffix(times.unit), hoverformat=".1f", showgrid=False, fixedrange=True
    )
    drawn.update_yaxes(ticksuffix=suffix(chart.unit), range=[0, chart.top], fixedrange=True)

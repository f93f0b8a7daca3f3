"""What machines measured over the run: a mean within a range."""

from __future__ import annotations

import plotly.graph_objects as go

from ..over_time import OverTime
from .theme import Theme, suffix, value_axis

_HEIGHT = 220
_MOST_TICKS = 4


def draw_over_time(chart: OverTime, drawn: go.Figure, theme: Theme) -> None:
    """Draw both ends of the range, then the mean."""
    x = chart.x * chart.times.factor
    edge = {"mode": "lines", "connectgaps": False, "showlegend": False}
    for name, values, fill in (
        ("greatest", chart.columns.high, None),
        ("least", chart.columns.low, "tonexty"),
    ):
        drawn.add_scatter(
            x=x,
            y=values,
            fill=fill,
            fillcolor=theme.of("warmup"),
            line={"width": 0, "shape": "hvh", "color": theme.of("warmup")},
            hovertemplate=f"{name}: %{{y:.1f}}{suffix(chart.unit)}<extra></extra>",
            **edge,
        )
    drawn.add_scatter(
        x=x,
        y=chart.columns.mean,
        line={"width": 2, "shape": "hvh", "color": theme.of("ink")},
        hovertemplate=f"mean: %{{y:.1f}}{suffix(chart.unit)}<extra></extra>",
        **edge,
    )
    drawn.update_layout(height=_HEIGHT, hovermode="x unified", showlegend=False)
    drawn.update_xaxes(
        ticksuffix=suffix(chart.times.unit), hoverformat=".1f", showgrid=False, fixedrange=True
    )
    drawn.update_yaxes(**value_axis(chart.y, _MOST_TICKS))

"""Machine metrics over the run: a mean within a range."""

from __future__ import annotations

from ..over_time import OverTime
from .drawing import Drawing
from .theme import Theme, suffix, value_axis

_HEIGHT = 220
_MOST_TICKS = 4


def draw_over_time(chart: OverTime, drawn: Drawing, theme: Theme) -> None:
    """Draw both ends of the range, then the mean."""
    x = chart.x * chart.times.factor
    edge = {"mode": "lines", "connectgaps": False, "showlegend": False}
    for name, values, fill in (
        ("greatest", chart.columns.high, None),
        ("least", chart.columns.low, "tonexty"),
    ):
        drawn.add_trace(
            "scatter",
            x=x,
            y=values,
            fill=fill,
            fillcolor=theme.of("warmup"),
            line={"width": 0, "shape": "hvh", "color": theme.of("warmup")},
            hovertemplate=f"{name}: %{{y:.1f}}{suffix(chart.unit)}<extra></extra>",
            **edge,
        )
    drawn.add_trace(
        "scatter",
        x=x,
        y=chart.columns.mean,
        line={"width": 2, "shape": "hvh", "color": theme.of("ink")},
        hovertemplate=f"mean: %{{y:.1f}}{suffix(chart.unit)}<extra></extra>",
        **edge,
    )
    drawn.update(height=_HEIGHT, hovermode="x unified", showlegend=False)
    times = {"ticksuffix": suffix(chart.times.unit), "hoverformat": ".1f"}
    drawn.update(
        xaxis={**times, "showgrid": False, "fixedrange": True},
        yaxis=value_axis(chart.y, _MOST_TICKS),
    )

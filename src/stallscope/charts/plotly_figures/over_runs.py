"""A figure over the runs of a job."""

from __future__ import annotations

from html import escape

import plotly.graph_objects as go

from stallscope.formatting.numbers import amount

from ..over_runs import OverRuns
from .look import TEXT, Look, suffix

_HEIGHT = 300


def draw_over_runs(chart: OverRuns, drawn: go.Figure, look: Look) -> None:
    known = [
        (number, dot) for number, dot in enumerate(chart.dots, start=1) if dot.mean is not None
    ]
    means = [dot.mean for _, dot in known if dot.mean is not None]
    ends = [mean.ci95 or (mean.value, mean.value) for mean in means]
    drawn.add_scatter(
        x=[number for number, _ in known],
        y=[mean.value for mean in means],
        mode="markers",
        marker={"size": 9, "color": look.of("steps")},
        error_y={
            "type": "data",
            "symmetric": False,
            "array": [high - mean.value for mean, (_, high) in zip(means, ends, strict=True)],
            "arrayminus": [mean.value - low for mean, (low, _) in zip(means, ends, strict=True)],
            "color": look(TEXT),
            "thickness": 1.5,
            "width": 0,
        },
        hovertext=[
            f"{number}. {escape(dot.name, quote=False)}<br>"
            f"{escape(amount(mean.value, chart.unit, mean.ci95), quote=False)}"
            for (number, dot), mean in zip(known, means, strict=True)
        ],
        hoverinfo="text",
    )
    for level in chart.levels:
        drawn.add_scatter(
            x=[level.first - 0.4, level.last + 0.4],
            y=[level.begin, level.end],
            mode="lines",
            line={"width": 2, "dash": "dash", "color": look.of("steps")},
            hoverinfo="skip",
        )
    for run, said in chart.marks:
        drawn.add_vline(run - 0.5, line={"width": 2, "color": look(TEXT)})
        drawn.add_annotation(
            x=run - 0.5,
            y=1,
            yref="paper",
            yanchor="bottom",
            text=f"<b>{escape(said, quote=False)}</b>",
            showarrow=False,
            font={"size": 12},
        )
    drawn.update_layout(height=_HEIGHT, margin_t=28, showlegend=False)
    drawn.update_xaxes(
        range=[0.5, len(chart.dots) + 0.5],
        title={"text": "run", "font": {"size": 12}},
        tickformat="d",
        fixedrange=True,
        showgrid=False,
    )
    drawn.update_yaxes(ticksuffix=suffix(chart.unit), fixedrange=True)

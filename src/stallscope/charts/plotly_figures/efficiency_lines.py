"""Lines of efficiency over numbers of ranks."""

from __future__ import annotations

from html import escape
from math import log2

import plotly.graph_objects as go

from stallscope.formatting.numbers import percent

from ..palette import Colour
from ..rates import EfficiencyLines, Line
from .look import MARK, TEXT, Look

_HEIGHT = 340
# Text that steps back keeps 4.5 : 1 against its background.
_MUTED = Colour("#5c636a", "#a6a7ab")
# Room for names at the right, and between them: pixels, and a share of the axis.
_NAMES = 176
_APART = 0.065
_DASHES = ("dot", "dash", "longdash", "dashdot", "longdashdot", "solid")


def draw_efficiency_lines(chart: EfficiencyLines, drawn: go.Figure, look: Look) -> None:
    others = [line.name for line in chart.lines if line.others]
    for line in sorted(chart.lines, key=lambda one: not one.others):
        dash = _DASHES[others.index(line.name) % len(_DASHES)] if line.others else "solid"
        colour = look(MARK) if line.others else look.of("steps")
        drawn.add_scatter(
            name=escape(line.name, quote=False),
            x=[log2(ranks) for ranks, _ in line.points],
            y=[mean.value for _, mean in line.points],
            mode="lines+markers",
            line={
                "color": colour,
                "width": 1.2 if line.others else 3,
                "dash": "dash" if line.projected else dash,
            },
            marker={"size": 6 if line.others else 9, "color": colour},
            error_y=_whiskers(line, look),
            hovertext=[
                f"{escape(line.name, quote=False)}<br>{ranks:,} ranks: {percent(mean.value)}"
                for ranks, mean in line.points
            ],
            hoverinfo="text",
        )
    powers = range(int(log2(max(ranks for line in chart.lines for ranks, _ in line.points))) + 1)
    _name(chart, drawn, look)
    drawn.update_layout(height=_HEIGHT, margin_t=16, margin_r=_NAMES, showlegend=False)
    drawn.update_xaxes(
        tickvals=list(powers),
        ticktext=[f"{2**power:,}" for power in powers],
        title={"text": "ranks", "font": {"size": 12}},
        fixedrange=True,
        showgrid=False,
    )
    # Wide intervals are cut off: they would flatten what was measured, and names would touch.
    top = max(1.0, *(mean.value for line in chart.lines for _, mean in line.points))
    drawn.update_yaxes(tickformat=".0%", range=[-0.02, 1.06 * top], fixedrange=True)


def _name(chart: EfficiencyLines, drawn: go.Figure, look: Look) -> None:
    """Names behind the lines' last points, moved apart where they would lie on each other."""
    named = sorted(
        (line for line in chart.lines if not line.projected),
        key=lambda line: line.points[-1][1].value,
        reverse=True,
    )
    free = float("inf")
    for line in named:
        free = min(line.points[-1][1].value, free - _APART)
        drawn.add_annotation(
            x=1,
            xref="paper",
            y=free,
            text=escape(line.name, quote=False),
            showarrow=False,
            xanchor="left",
            xshift=6,
            font={"size": 11, "color": look(_MUTED if line.others else TEXT)},
        )


def _whiskers(line: Line, look: Look) -> dict[str, object]:
    if line.others or not any(mean.ci95 for _, mean in line.points):
        return {"visible": False}
    ends = [(mean.value, mean.ci95 or (mean.value, mean.value)) for _, mean in line.points]
    return {
        "type": "data",
        "symmetric": False,
        "array": [high - value for value, (_, high) in ends],
        "arrayminus": [value - low for value, (low, _) in ends],
        "color": look(TEXT),
        "thickness": 1.5,
        "width": 4,
    }

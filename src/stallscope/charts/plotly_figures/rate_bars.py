"""Upright bars of rates beside the ideal."""

from __future__ import annotations

from html import escape

import plotly.graph_objects as go

from stallscope.arrays.stats import Mean
from stallscope.formatting.numbers import amount

from ..rates import RateBar, RateBars
from .look import TEXT, Look, suffix

_HEIGHT = 340
_KINDS = (
    ("steady steps", "steps", 1.0),
    ("whole job", "startup", 1.0),
    ("projected", "steps", 0.35),
)


def draw_rate_bars(chart: RateBars, drawn: go.Figure, look: Look) -> None:
    for index, (name, colour, opacity) in enumerate(_KINDS):
        found = [(at, mean) for at, bar in enumerate(chart.bars) if (mean := _of(bar, index))]
        if not found:
            continue
        drawn.add_bar(
            name=name,
            x=[at for at, _ in found],
            y=[mean.value for _, mean in found],
            marker={"color": look.of(colour), "opacity": opacity, "line": {"width": 0}},
            error_y=_whiskers([mean for _, mean in found], look),
            hovertext=[
                f"{chart.bars[at].ranks:,} ranks, {name}<br>"
                f"{escape(amount(mean.value, chart.unit, mean.ci95), quote=False)}"
                for at, mean in found
            ],
            hoverinfo="text",
        )
    drawn.add_scatter(
        name="ideal",
        x=list(range(len(chart.bars))),
        y=[bar.ideal for bar in chart.bars],
        mode="markers",
        marker={"symbol": "line-ew", "size": 38, "line": {"width": 2, "color": look(TEXT)}},
        hovertemplate=f"ideal: %{{y:,.0f}}{suffix(chart.unit)}<extra></extra>",
    )
    drawn.update_layout(height=_HEIGHT, barmode="group", bargap=0.25, margin_t=24, legend_y=1.06)
    drawn.update_xaxes(
        tickvals=list(range(len(chart.bars))),
        ticktext=[f"{bar.ranks:,}" for bar in chart.bars],
        title={"text": "ranks", "font": {"size": 12}},
        fixedrange=True,
        showgrid=False,
    )
    drawn.update_yaxes(ticksuffix=suffix(chart.unit), rangemode="tozero", fixedrange=True)


def _of(bar: RateBar, kind: int) -> Mean | None:
    if kind == 1:
        return bar.whole_job
    return bar.steady if bar.projected == (kind == 2) else None


def _whiskers(means: list[Mean], look: Look) -> dict[str, object]:
    ends = [mean.ci95 or (mean.value, mean.value) for mean in means]
    return {
        "type": "data",
        "symmetric": False,
        "array": [high - mean.value for mean, (_, high) in zip(means, ends, strict=True)],
        "arrayminus": [mean.value - low for mean, (low, _) in zip(means, ends, strict=True)],
        "color": look(TEXT),
        "thickness": 1.5,
        "width": 4,
    }

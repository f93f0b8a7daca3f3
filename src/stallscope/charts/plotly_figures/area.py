"""Stacked areas over the run."""

from __future__ import annotations

import numpy as np

from stallscope.text.titles import title_of

from ..area import Areas
from .drawing import Drawing
from .theme import Theme, add_changes, add_epochs, hover, step_axis, suffix, value_axis

_HEIGHT = 320


def draw_area(areas: Areas, drawn: Drawing, theme: Theme) -> None:
    """Draw a trace per layer, then marks, changes, pauses and peaks."""
    chart = areas.chart
    for (name, _), values in zip(chart.layers, areas.layers, strict=True):
        drawn.add_trace(
            "scatter",
            name=title_of(name),
            x=areas.x,
            y=values,
            stackgroup="entries",
            mode="lines",
            line={"width": 0.5, "color": theme.of(name)},
            fillcolor=theme.of(name),
            hovertemplate=f"{title_of(name)}: %{{y:.2f}}{suffix(areas.y.unit)}<extra></extra>",
        )
    _add_windows(areas, drawn, theme)
    add_epochs(drawn, chart.marks, theme)
    add_changes(drawn, chart.changes, theme, bgcolor=theme.of("paper"), yanchor="top")
    _add_signs(drawn, areas.pauses, 0.0, ("triangle-up", theme.of("paper")), theme)
    _add_signs(drawn, areas.peaks, areas.y.high, ("triangle-up", theme.of("ink")), theme)
    if chart.rates is not None:
        # Shown only in the tooltip, because it has another unit.
        drawn.add_trace(
            "scatter",
            x=chart.x,
            y=np.zeros(len(chart.x)),
            customdata=chart.rates,
            mode="lines",
            line={"width": 0},
            showlegend=False,
            hovertemplate="Throughput: %{customdata:,.0f} samples/s<extra></extra>",
        )
    drawn.update(height=_HEIGHT, hovermode="x unified", margin={"t": 24}, legend={"y": 1.08})
    spikes = {"spikecolor": theme.of("muted"), "spikethickness": 1}
    drawn.update(xaxis={**spikes, **step_axis(chart.x_label)}, yaxis=value_axis(areas.y))


def _add_windows(areas: Areas, drawn: Drawing, theme: Theme) -> None:
    """Draw the median and the 95th percentile of windows."""
    windows = areas.chart.windows
    if windows is None:
        return
    for name, values, dash in (
        ("median", windows.median, "solid"),
        ("95th percentile", windows.p95, "dot"),
    ):
        drawn.add_trace(
            "scatter",
            name=name,
            x=windows.x,
            y=values * areas.y.factor,
            mode="lines",
            line={"width": 2, "color": theme.of("ink"), "dash": dash},
            hovertemplate=f"{name} of {windows.length:,} steps: %{{y:.2f}}{suffix(areas.y.unit)}"
            "<extra></extra>",
        )


def _add_signs(
    drawn: Drawing,
    places: tuple[tuple[float, str], ...],
    level: float,
    sign: tuple[str, str],
    theme: Theme,
) -> None:
    """Draw triangles with tooltips on one level."""
    if not places:
        return
    symbol, colour = sign
    drawn.add_trace(
        "scatter",
        x=[at for at, _ in places],
        y=[level] * len(places),
        mode="markers",
        marker={
            "symbol": symbol,
            "size": 10,
            "color": colour,
            "line": {"width": 1.5, "color": theme.of("ink")},
        },
        cliponaxis=False,
        showlegend=False,
        hovertext=[hover([text]) for _, text in places],
        hovertemplate="%{hovertext}<extra></extra>",
    )

"""Dots, lines and areas between two axes, also over time."""

from __future__ import annotations

from typing import Any

import numpy as np

from stallscope.text.vocabulary import title_of

from .. import PALETTE, Colour
from ..axis import Areas, shortened, text_width
from ..curves import Curve, Curves, moved_apart
from ..step_time import OverTime
from .plotly_parts import (
    SMALL,
    Drawing,
    add_changes,
    add_epochs,
    add_lines,
    add_text,
    hover,
    markup,
    named_axis,
    step_axis,
    suffix,
    value_axis,
    whiskers,
)

_HEIGHT, _HEIGHT_WITH_NAMES = 300, 400
_MOST_TICKS = 12
# Names at the right: their largest width and their distance from the axes in pixels, and the distance
# between two names as a share of the axis, enough for two lines.
_WIDEST_NAMES = 230
_BEFORE_NAMES = 6
_APART = 0.11
# Published curves are all grey: dashes distinguish them.
_DASHES = ("dot", "dash", "longdash", "dashdot", "longdashdot", "solid")
_COLOURS = {"own": "steps", "projected": "steps", "others": "muted"}
_WIDTHS = {"own": 3.0, "projected": 2.0, "others": 1.2}
# Margin around the outermost dots, as a share of the axis.
_EDGE = 0.03
_AREA_HEIGHT = 320

_GAUGE_HEIGHT = 220
_GAUGE_TICKS = 4


def draw_curves(curves: Curves, drawn: Drawing) -> None:
    """Draw curves, marks and names."""
    for at, curve in enumerate(curves.curves):
        dash = {"own": "solid", "projected": "dash", "others": _DASHES[at % len(_DASHES)]}
        _add_curve(drawn, curve, curves.y.low, dash[curve.style])
    add_lines(drawn, [value for value, _ in curves.marks], strong=True)
    for value, label in curves.marks:
        above: dict[str, Any] = {"y": 1, "yref": "paper", "yanchor": "bottom"}
        add_text(drawn, label, PALETTE["ink"], strong=True, x=value, **above)
    drawn.update(
        height=_HEIGHT_WITH_NAMES if curves.names else _HEIGHT,
        margin={
            "t": 28 if curves.marks else 16,
            "r": _write_names(curves, drawn) + 16,
        },
        showlegend=False,
    )
    edge = _EDGE * (curves.x.high - curves.x.low)
    ends = [curves.x.low - edge, curves.x.high + edge]
    names = named_axis(curves.x, curves.x_ticks, _MOST_TICKS)
    drawn.update(xaxis={**names, "range": ends}, yaxis=value_axis(curves.y))


def _write_names(curves: Curves, drawn: Drawing) -> float:
    """Write the curves' names at the right, and return their width in pixels."""
    names = curves.names
    span = curves.y.high - curves.y.low
    levels = moved_apart([dot.y or 0.0 for _, dot, _ in names], _APART * span)
    at_the_end: dict[str, Any] = {
        # The dashboard wraps annotations of this name on narrow screens.
        "name": "curve",
        "x": 1,
        "xref": "paper",
        "xanchor": "left",
        "xshift": _BEFORE_NAMES,
    }
    for (name, _, others), level in zip(names, levels, strict=True):
        ink = PALETTE["muted" if others else "ink"]
        add_text(drawn, shortened(name, _WIDEST_NAMES), ink, y=level, **at_the_end)
    widest = max((text_width(name, SMALL) for name, _, _ in names), default=-_BEFORE_NAMES)
    return min(widest, _WIDEST_NAMES) + _BEFORE_NAMES


def _add_curve(drawn: Drawing, curve: Curve, low: float, dash: str) -> None:
    colour = PALETTE[_COLOURS[curve.style]]
    known = [(dot, dot.y) for dot in curve.dots if dot.y is not None]
    values = [value for _, value in known]
    parts = [*["lines"] * curve.joined, *["markers"] * curve.dotted]
    drawn.add_trace(
        "scatter",
        name=markup(curve.name),
        x=[dot.x for dot, _ in known],
        y=values,
        mode="+".join(parts),
        line={"color": colour, "width": _WIDTHS[curve.style], "dash": dash},
        marker={"size": 6 if curve.style == "others" else 9, "color": colour},
        error_y=whiskers(values, [dot.whisker for dot, _ in known]),
        hovertext=[hover([dot.hover]) for dot, _ in known],
        hoverinfo="text" if curve.dotted else "skip",
    )
    missing = [dot for dot in curve.dots if dot.y is None]
    if missing:
        drawn.add_trace(
            "scatter",
            x=[dot.x for dot in missing],
            y=[low] * len(missing),
            mode="text",
            text="–",
            textposition="top center",
            hovertext=[hover([dot.hover]) for dot in missing],
            hoverinfo="text",
        )


# -- Stacked areas over the run -------------------------------------------------------------------


def draw_area(areas: Areas, drawn: Drawing) -> None:
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
            line={"width": 0.5, "color": PALETTE[name]},
            fillcolor=PALETTE[name],
            hovertemplate=f"{title_of(name)}: %{{y:.2f}}{suffix(areas.y.unit)}<extra></extra>",
        )
    _add_windows(areas, drawn)
    add_epochs(drawn, chart.marks)
    add_changes(drawn, chart.changes, bgcolor=PALETTE["paper"], yanchor="top")
    _add_signs(drawn, areas.pauses, 0.0, ("triangle-up", PALETTE["paper"]))
    _add_signs(drawn, areas.peaks, areas.y.high, ("triangle-up", PALETTE["ink"]))
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
    drawn.update(height=_AREA_HEIGHT, hovermode="x unified", margin={"t": 24}, legend={"y": 1.08})
    spikes = {"spikecolor": PALETTE["muted"], "spikethickness": 1}
    drawn.update(xaxis={**spikes, **step_axis(chart.x_label)}, yaxis=value_axis(areas.y))
    if chart.pauses and len(areas.x) > 1:
        # A mark at the end would widen the axis.
        drawn.update(xaxis={"range": [float(areas.x[0]), float(areas.x[-1])]})


def _add_windows(areas: Areas, drawn: Drawing) -> None:
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
            line={"width": 2, "color": PALETTE["ink"], "dash": dash},
            hovertemplate=f"{name} of {windows.length:,} steps: %{{y:.2f}}{suffix(areas.y.unit)}"
            "<extra></extra>",
        )


def _add_signs(
    drawn: Drawing,
    places: tuple[tuple[float, str], ...],
    level: float,
    sign: tuple[str, Colour],
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
            "line": {"width": 1.5, "color": PALETTE["ink"]},
        },
        cliponaxis=False,
        showlegend=False,
        hovertext=[hover([text]) for _, text in places],
        hovertemplate="%{hovertext}<extra></extra>",
    )


# -- Machine metrics over the run: a mean within a range ------------------------------------------


def draw_over_time(chart: OverTime, drawn: Drawing) -> None:
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
            fillcolor=PALETTE["warmup"],
            line={"width": 0, "shape": "hvh", "color": PALETTE["warmup"]},
            hovertemplate=f"{name}: %{{y:.1f}}{suffix(chart.unit)}<extra></extra>",
            **edge,
        )
    drawn.add_trace(
        "scatter",
        x=x,
        y=chart.columns.mean,
        line={"width": 2, "shape": "hvh", "color": PALETTE["ink"]},
        hovertemplate=f"mean: %{{y:.1f}}{suffix(chart.unit)}<extra></extra>",
        **edge,
    )
    drawn.update(height=_GAUGE_HEIGHT, hovermode="x unified", showlegend=False)
    times = {"ticksuffix": suffix(chart.times.unit), "hoverformat": ".1f"}
    drawn.update(
        xaxis={**times, "showgrid": False, "fixedrange": True},
        yaxis=value_axis(chart.y, _GAUGE_TICKS),
    )

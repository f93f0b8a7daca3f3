"""Dots and lines between two axes."""

from __future__ import annotations

from typing import Any

from ..curves import Curve, Curves, moved_apart
from ..text_width import shortened, text_width
from .drawing import Drawing
from .theme import (
    SMALL,
    Theme,
    add_lines,
    add_text,
    hover,
    markup,
    named_axis,
    value_axis,
    whiskers,
)

_HEIGHT, _HEIGHT_WITH_NAMES = 300, 400
_MOST_TICKS = 12
# Names at the right: their largest width and their distance from the axes in pixels, and the distance
# between two names as a share of the axis, enough for two lines.
_WIDEST_NAMES = 230
_BEFORE_NAMES = 6
_APART = 0.085
# Published curves are all grey: dashes distinguish them.
_DASHES = ("dot", "dash", "longdash", "dashdot", "longdashdot", "solid")
_COLOURS = {"own": "steps", "projected": "steps", "others": "muted"}
_WIDTHS = {"own": 3.0, "projected": 2.0, "others": 1.2}
# Margin around the outermost dots, as a share of the axis.
_EDGE = 0.03


def draw_curves(curves: Curves, drawn: Drawing, theme: Theme) -> None:
    """Draw curves, marks and names."""
    for at, curve in enumerate(curves.curves):
        dash = {"own": "solid", "projected": "dash", "others": _DASHES[at % len(_DASHES)]}
        _add_curve(drawn, curve, curves.y.low, dash[curve.style], theme)
    add_lines(drawn, [value for value, _ in curves.marks], theme, strong=True)
    for value, label in curves.marks:
        above: dict[str, Any] = {"y": 1, "yref": "paper", "yanchor": "bottom"}
        add_text(drawn, label, theme.of("ink"), strong=True, x=value, **above)
    drawn.update(
        height=_HEIGHT_WITH_NAMES if curves.names else _HEIGHT,
        margin={
            "t": 28 if curves.marks else 16,
            "r": _write_names(curves, drawn, theme) + 16,
        },
        showlegend=False,
    )
    edge = _EDGE * (curves.x.high - curves.x.low)
    ends = [curves.x.low - edge, curves.x.high + edge]
    names = named_axis(curves.x, curves.x_ticks, _MOST_TICKS)
    drawn.update(xaxis={**names, "range": ends}, yaxis=value_axis(curves.y))


def _write_names(curves: Curves, drawn: Drawing, theme: Theme) -> float:
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
        ink = theme.of("muted" if others else "ink")
        add_text(drawn, shortened(name, _WIDEST_NAMES), ink, y=level, **at_the_end)
    widest = max((text_width(name, SMALL) for name, _, _ in names), default=-_BEFORE_NAMES)
    return min(widest, _WIDEST_NAMES) + _BEFORE_NAMES


def _add_curve(drawn: Drawing, curve: Curve, low: float, dash: str, theme: Theme) -> None:
    colour = theme.of(_COLOURS[curve.style])
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
        error_y=whiskers(values, [dot.whisker for dot, _ in known], theme),
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

"""From one total to another, change by change."""

from __future__ import annotations

from html import escape
from itertools import accumulate

import plotly.graph_objects as go

from ..charts import TITLES, Waterfall
from ..palette import Colour
from .look import AXIS_HEIGHT, MARK, Look, interval_lines, rows_axis, suffix

_TOTAL = Colour("#5c636a", "#c1c7cd")
_ROW = 28


def draw_waterfall(chart: Waterfall, drawn: go.Figure, look: Look) -> None:
    """Horizontal, so that names stay readable on narrow screens."""
    printed = chart.printed
    low = chart.start[1]
    _row(drawn, 0, 0.0, chart.start, look(_TOTAL), printed.amount(chart.printed_start))
    for row, (change, part) in enumerate(zip(chart.changes, printed.parts, strict=True), start=1):
        said = f"{printed.signed(part)} {printed.scale.unit}"
        _row(
            drawn,
            row,
            low,
            (TITLES[change.name], change.value),
            look.of(change.name),
            said,
            f"<b>{TITLES[change.name]}</b><br>{said}{interval_lines(change, printed)}",
        )
        low += change.value
    last = len(chart.changes) + 1
    _row(drawn, last, 0.0, chart.end, look(_TOTAL), printed.amount(chart.printed_end))
    _steps_between(drawn, chart, look)
    drawn.update_layout(
        barmode="overlay",
        showlegend=False,
        uniformtext=None,
        height=_ROW * (last + 1) + AXIS_HEIGHT,
        # The amounts stand beyond the bars, and need the same room on every screen.
        margin_r=72,
    )
    names = [chart.start[0], *(TITLES[change.name] for change in chart.changes), chart.end[0]]
    rows_axis(drawn, [escape(name, quote=False) for name in names])
    drawn.update_xaxes(ticksuffix=suffix(chart.unit), fixedrange=True, range=[0, _highest(chart)])


def _row(
    drawn: go.Figure,
    row: int,
    base: float,
    entry: tuple[str, float],
    colour: str,
    text: str,
    hover: str | None = None,
) -> None:
    name, value = entry
    drawn.add_bar(
        name=escape(name, quote=False),
        orientation="h",
        y=[row],
        x=[value],
        base=[base],
        width=0.64,
        # What is taken away is hatched: its length alone does not say in which direction it goes.
        marker={
            "color": colour,
            "line": {"width": 0},
            "pattern": {"shape": "/" if value < 0 else ""},
        },
        hovertext=[hover or f"<b>{escape(name, quote=False)}</b><br>{text}"],
        hoverinfo="text",
    )
    drawn.add_annotation(
        x=max(base, base + value),
        y=row,
        text=text,
        showarrow=False,
        xanchor="left",
        xshift=4,
        font={"size": 12},
    )


def _steps_between(drawn: go.Figure, chart: Waterfall, look: Look) -> None:
    level = chart.start[1]
    for row, value in enumerate([*(change.value for change in chart.changes), 0.0]):
        drawn.add_shape(
            type="line",
            x0=level,
            x1=level,
            y0=row + 0.32,
            y1=row + 0.68,
            line={"width": 1, "color": look(MARK)},
        )
        level += value


def _highest(chart: Waterfall) -> float:
    changes = (change.value for change in chart.changes)
    return max(chart.end[1], *accumulate(changes, initial=chart.start[1]))

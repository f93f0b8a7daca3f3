"""Stacked horizontal bars."""

from __future__ import annotations

from html import escape

import plotly.graph_objects as go

from stallscope.formatting.numbers import percent
from stallscope.formatting.sums import SumColumn

from ..charts import TITLES, Bar, Segment, StackedBars
from ..palette import Colour
from .look import AXIS_HEIGHT, Look, interval_lines, rows_axis, suffix

_BAND = Colour("rgba(213, 94, 0, 0.10)", "rgba(240, 127, 51, 0.16)")

#: Text fits into so many bars; with more of them it would be noise.
_MOST_LABELLED_BARS = 4


def draw_bars(chart: StackedBars, drawn: go.Figure, look: Look) -> None:
    labelled = len(chart.bars) <= _MOST_LABELLED_BARS
    rows = range(len(chart.bars))
    columns = chart.printed
    for name in _names(chart):
        segments = [_segment(bar, name) for bar in chart.bars]
        figures = [_figure(bar, name, own) for bar, own in zip(chart.bars, columns, strict=True)]
        drawn.add_bar(
            name=TITLES[name],
            orientation="h",
            y=list(rows),
            x=[None if one is None else one.value for one in segments],
            width=0.72,
            marker={"color": look.of(name), "line": {"width": 0}},
            text=figures if labelled else None,
            textposition="inside" if labelled else "none",
            insidetextanchor="middle",
            textangle=0,
            hovertext=[
                "" if one is None else _bar_hover(one, figure, bar, own)
                for one, figure, bar, own in zip(
                    segments, figures, chart.bars, columns, strict=True
                )
            ],
            hoverinfo="text",
        )
    for row in rows:
        if chart.bars[row].emphasised:
            drawn.add_hrect(
                row - 0.5, row + 0.5, layer="below", fillcolor=look(_BAND), line={"width": 0}
            )
    height = _row_height(len(chart.bars)) * len(chart.bars)
    drawn.update_layout(barmode="stack", height=height + AXIS_HEIGHT)
    rows_axis(drawn, [_bar_label(bar) for bar in chart.bars])
    drawn.update_xaxes(ticksuffix=suffix(chart.unit), fixedrange=True, rangemode="tozero")


def _names(chart: StackedBars) -> list[str]:
    """Names of segments, in the order in which the bars stack them."""
    return list(dict.fromkeys(segment.name for bar in chart.bars for segment in bar.segments))


def _segment(bar: Bar, name: str) -> Segment | None:
    return next((segment for segment in bar.segments if segment.name == name), None)


def _bar_label(bar: Bar) -> str:
    label = escape(bar.label, quote=False)
    return f"<b>{label}</b>" if bar.emphasised else label


def _bar_hover(segment: Segment, figure: str, bar: Bar, printed: SumColumn) -> str:
    share = f", {percent(segment.value / bar.total)} of" if bar.total else ""
    whole = f"{share} {printed.amount(printed.total)}" if share else ""
    return (
        f"<b>{TITLES[segment.name]}</b><br>{figure}{whole}"
        f"{interval_lines(segment, printed)}<br>{escape(bar.label, quote=False)}"
    )


def _figure(bar: Bar, name: str, printed: SumColumn) -> str:
    """The figure of a bar's segment; empty where the bar has none of that name."""
    names = [segment.name for segment in bar.segments]
    return printed.amount(printed.parts[names.index(name)]) if name in names else ""


def _row_height(rows: int) -> int:
    """Pixels per bar: thick where there are few, so that 32 still fit on a screen."""
    if rows <= 2:
        return 64
    return 34 if rows <= 8 else 22

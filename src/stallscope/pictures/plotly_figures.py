"""Charts as Plotly figures, for the dashboard and for notebooks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import singledispatch
from html import escape
from itertools import accumulate
from typing import Any

import plotly.graph_objects as go

from .charts import TITLES, Bar, Chart, Segment, StackedArea, StackedBars, Waterfall
from .palette import COLOURS, Colour

#: For ``Figure.show(config=CONFIG)`` and ``dcc.Graph``: no logo, and nothing that sends data anywhere.
CONFIG: dict[str, Any] = {
    "displaylogo": False,
    "showSendToCloud": False,
    "showEditInChartStudio": False,
    "plotlyServerURL": "",
    "modeBarButtonsToRemove": ["zoom2d", "pan2d", "select2d", "lasso2d", "autoScale2d"],
    "responsive": True,
}

_FONT = "-apple-system, BlinkMacSystemFont, 'Segoe UI', Roboto, Helvetica, Arial, sans-serif"
_TEXT = Colour("#343a40", "#d5d8dc")
_GRID = Colour("#e6e8eb", "#3a3d42")
_MARK = Colour("#868e96", "#7b828a")
_TOTAL = Colour("#5c636a", "#c1c7cd")
_BAND = Colour("rgba(213, 94, 0, 0.10)", "rgba(240, 127, 51, 0.16)")
_HOVER = Colour("#ffffff", "#25262b")

#: Text fits into so many bars; with more of them it would be noise.
_MOST_LABELLED_BARS = 4
#: Labels of marks side by side that can be read on a telephone.
_MOST_MARK_LABELS = 6
_AXIS_HEIGHT = 40
_LEGEND_HEIGHT = 30
_AREA_HEIGHT = 320
_WATERFALL_ROW = 28


@dataclass(frozen=True)
class _Look:
    """Light or dark: picks from pairs of colours."""

    dark: bool

    def __call__(self, colour: Colour) -> str:
        return colour.dark if self.dark else colour.light

    def of(self, name: str) -> str:
        return self(COLOURS[name])


def figure(chart: Chart, *, dark: bool, legend: bool = True) -> go.Figure:
    """Draw a chart for a light or a dark page.

    The background is transparent and the width the container's; the height is in ``layout.height``,
    pixels. Texts are escaped: Plotly takes some HTML in labels for markup.

    Args:
        chart: what to draw.
        dark: whether the page is dark.
        legend: whether the picture names its colours itself.
    """
    look = _Look(dark)
    drawn = go.Figure(layout=_layout(look))
    _draw(chart, drawn, look)
    if legend and drawn.layout.showlegend is None:
        drawn.layout.height += _LEGEND_HEIGHT
        drawn.layout.margin.t += _LEGEND_HEIGHT
    else:
        drawn.layout.showlegend = False
    return drawn


@singledispatch
def _draw(chart: Chart, _drawn: go.Figure, _look: _Look) -> None:
    raise TypeError(f"no way to draw a {type(chart).__name__}")


@_draw.register
def _draw_bars(chart: StackedBars, drawn: go.Figure, look: _Look) -> None:
    labelled = len(chart.bars) <= _MOST_LABELLED_BARS
    rows = range(len(chart.bars))
    for name in _names(chart):
        segments = [_segment(bar, name) for bar in chart.bars]
        drawn.add_bar(
            name=TITLES[name],
            orientation="h",
            y=list(rows),
            x=[None if one is None else one.value for one in segments],
            width=0.72,
            marker={"color": look.of(name), "line": {"width": 0}},
            text=[_amount(one, chart.unit) for one in segments] if labelled else None,
            textposition="inside" if labelled else "none",
            insidetextanchor="middle",
            textangle=0,
            hovertext=[
                "" if one is None else _bar_hover(one, bar, chart.unit)
                for one, bar in zip(segments, chart.bars, strict=True)
            ],
            hoverinfo="text",
        )
    for row in rows:
        if chart.bars[row].emphasised:
            drawn.add_hrect(
                row - 0.5, row + 0.5, layer="below", fillcolor=look(_BAND), line={"width": 0}
            )
    height = _row_height(len(chart.bars)) * len(chart.bars)
    drawn.update_layout(barmode="stack", height=height + _AXIS_HEIGHT)
    _rows_axis(drawn, [_bar_label(bar) for bar in chart.bars])
    drawn.update_xaxes(ticksuffix=_suffix(chart.unit), fixedrange=True, rangemode="tozero")


@_draw.register
def _draw_waterfall(chart: Waterfall, drawn: go.Figure, look: _Look) -> None:
    """Horizontal, so that names stay readable on narrow screens."""
    unit = chart.unit
    low = chart.start[1]
    _waterfall_row(drawn, 0, 0.0, chart.start, look(_TOTAL), f"{chart.start[1]:.1f}{_suffix(unit)}")
    for row, change in enumerate(chart.changes, start=1):
        _waterfall_row(
            drawn,
            row,
            low,
            (TITLES[change.name], change.value),
            look.of(change.name),
            f"{_signed(change.value)}{_suffix(unit)}",
            _change_hover(change, unit),
        )
        low += change.value
    last = len(chart.changes) + 1
    _waterfall_row(drawn, last, 0.0, chart.end, look(_TOTAL), f"{chart.end[1]:.1f}{_suffix(unit)}")
    _steps_between(drawn, chart, look)
    drawn.update_layout(
        barmode="overlay",
        showlegend=False,
        uniformtext=None,
        height=_WATERFALL_ROW * (last + 1) + _AXIS_HEIGHT,
        # The amounts stand beyond the bars, and need the same room on every screen.
        margin_r=72,
    )
    names = [chart.start[0], *(TITLES[change.name] for change in chart.changes), chart.end[0]]
    _rows_axis(drawn, [escape(name, quote=False) for name in names])
    drawn.update_xaxes(ticksuffix=_suffix(unit), fixedrange=True, range=[0, _highest(chart)])


@_draw.register
def _draw_area(chart: StackedArea, drawn: go.Figure, look: _Look) -> None:
    unit = escape(chart.unit, quote=False)
    for name, values in chart.layers:
        drawn.add_scatter(
            name=TITLES[name],
            x=chart.x,
            y=values,
            stackgroup="entries",
            mode="lines",
            line={"width": 0.5, "color": look.of(name)},
            fillcolor=look.of(name),
            hovertemplate=f"{TITLES[name]}: %{{y:.2f}} {unit}<extra></extra>",
        )
    every = -(-len(chart.marks) // _MOST_MARK_LABELS)
    for number, (at, label) in enumerate(chart.marks):
        drawn.add_vline(at, line={"width": 1, "dash": "dot", "color": look(_MARK)})
        if number % every == 0:
            drawn.add_annotation(
                x=at,
                y=1,
                yref="paper",
                yanchor="bottom",
                xanchor="left",
                text=escape(label, quote=False),
                showarrow=False,
                font={"size": 11, "color": look(_MARK)},
            )
    drawn.update_layout(
        height=_AREA_HEIGHT,
        hovermode="x unified",
        margin_t=24,
        legend_y=1.08,
    )
    drawn.update_xaxes(
        # Names the first tick, and every value under the pointer.
        tickprefix=f"{escape(chart.x_label, quote=False)} ",
        showtickprefix="first",
        hoverformat=",d",
        showgrid=False,
        spikecolor=look(_MARK),
        spikethickness=1,
    )
    drawn.update_yaxes(ticksuffix=_suffix(chart.unit), rangemode="tozero", fixedrange=True)


def _layout(look: _Look) -> go.Layout:
    axis = {
        "gridcolor": look(_GRID),
        "zeroline": False,
        "linecolor": look(_GRID),
        "tickfont": {"size": 12},
        "automargin": True,
        "nticks": 6,
    }
    return go.Layout(
        template="none",
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"family": _FONT, "size": 13, "color": look(_TEXT)},
        margin={"l": 8, "r": 16, "t": 8, "b": 32, "pad": 4},
        hoverlabel={
            "bgcolor": look(_HOVER),
            "bordercolor": look(_GRID),
            "font": {"family": _FONT, "size": 13, "color": look(_TEXT)},
            "align": "left",
        },
        legend={
            "orientation": "h",
            "x": 0,
            "y": 1,
            "yanchor": "bottom",
            "traceorder": "normal",
            "itemclick": "toggle",
            "font": {"size": 12},
        },
        modebar={
            "bgcolor": "rgba(0,0,0,0)",
            "color": look(_MARK),
            "activecolor": look(_TEXT),
        },
        uniformtext={"minsize": 12, "mode": "hide"},
        dragmode=False,
        xaxis=axis,
        yaxis=axis,
    )


def _rows_axis(drawn: go.Figure, labels: list[str]) -> None:
    # Numbers with texts, not categories: two bars may have the same label.
    drawn.update_yaxes(
        tickvals=list(range(len(labels))),
        ticktext=labels,
        range=[len(labels) - 0.5, -0.5],
        fixedrange=True,
        showgrid=False,
        showline=False,
        ticklabelstandoff=4,
    )


def _waterfall_row(
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


def _steps_between(drawn: go.Figure, chart: Waterfall, look: _Look) -> None:
    level = chart.start[1]
    for row, value in enumerate([*(change.value for change in chart.changes), 0.0]):
        drawn.add_shape(
            type="line",
            x0=level,
            x1=level,
            y0=row + 0.32,
            y1=row + 0.68,
            line={"width": 1, "color": look(_MARK)},
        )
        level += value


def _highest(chart: Waterfall) -> float:
    changes = (change.value for change in chart.changes)
    return max(chart.end[1], *accumulate(changes, initial=chart.start[1]))


def _names(chart: StackedBars) -> list[str]:
    """Names of segments, in the order in which the bars stack them."""
    return list(dict.fromkeys(segment.name for bar in chart.bars for segment in bar.segments))


def _segment(bar: Bar, name: str) -> Segment | None:
    return next((segment for segment in bar.segments if segment.name == name), None)


def _bar_label(bar: Bar) -> str:
    label = escape(bar.label, quote=False)
    return f"<b>{label}</b>" if bar.emphasised else label


def _bar_hover(segment: Segment, bar: Bar, unit: str) -> str:
    share = (
        f", {segment.value / bar.total:.0%} of {bar.total:.1f}{_suffix(unit)}" if bar.total else ""
    )
    return (
        f"<b>{TITLES[segment.name]}</b><br>{segment.value:.2f}{_suffix(unit)}{share}"
        f"{_interval(segment, unit)}<br>{escape(bar.label, quote=False)}"
    )


def _change_hover(change: Segment, unit: str) -> str:
    amount = f"{_signed(change.value)}{_suffix(unit)}"
    return f"<b>{TITLES[change.name]}</b><br>{amount}{_interval(change, unit)}"


def _interval(segment: Segment, unit: str) -> str:
    if segment.ci95 is None:
        return ""
    low, high = segment.ci95
    return f"<br>95% interval: {low:.2f} to {high:.2f}{_suffix(unit)}"


def _amount(segment: Segment | None, unit: str) -> str:
    return "" if segment is None else f"{segment.value:.1f}{_suffix(unit)}"


def _signed(value: float) -> str:
    rounded = round(value, 1)
    return f"{rounded:+.1f}".replace("-", "−") if rounded else "0.0"


def _suffix(unit: str) -> str:
    return f" {escape(unit, quote=False)}"


def _row_height(rows: int) -> int:
    """Pixels per bar: thick where there are few, so that 32 still fit on a screen."""
    if rows <= 2:
        return 64
    return 34 if rows <= 8 else 22

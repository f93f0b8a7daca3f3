"""Heat maps: rows of cells over the run."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from itertools import groupby

import numpy as np
import plotly.graph_objects as go

from ..heat_map import HeatMap
from ..palette import COLOURS, HEAT
from ..svg.markup import shortened, text_width
from .look import AXIS_HEIGHT, MARK, Look, suffix

#: Rows of which every one has room for its label.
_MOST_LABELLED_ROWS = 32
_LABELS_OF_MANY = 14
#: Pixels per row, for up to so many of them.
_ROW_HEIGHTS = ((2, 52), (8, 34), (16, 24), (_MOST_LABELLED_ROWS, 18), (64, 9), (128, 5))
_THINNEST = 3
# Room for marks, and for the names of groups beside them.
_MARKS, _GROUPS = 18, 20
_SMALL = 11.0
#: The same on light and dark pages: traces do not know which they are on.
_NOT_MEASURED = "#7f868e"
# Of whole numbers, single precision knows no larger ones.
_EXACT = 2**24


def draw_heat_map(chart: HeatMap, drawn: go.Figure, look: Look) -> None:
    rows = len(chart.rows)
    names = _names(chart)
    drawn.add_heatmap(
        x=chart.edges,
        y=names,
        z=chart.values.astype(np.float32),
        customdata=_under_the_pointer(chart),
        hovertemplate=_hover(chart),
        hoverongaps=False,
        coloraxis="coloraxis",
        showlegend=False,
    )
    _add_not_measured(chart, drawn, names)
    _add_marks(chart, drawn, look)
    groups = _add_groups(chart, drawn, look)
    drawn.update_layout(
        height=row_height(rows) * rows + AXIS_HEIGHT,
        showlegend=False,
        dragmode="zoom",
        margin_r=_MARKS + (_GROUPS if groups else 0),
        coloraxis={
            "cmin": 0,
            "cmax": chart.full,
            "colorscale": [[at / (len(HEAT) - 1), look(one)] for at, one in enumerate(HEAT)],
            "colorbar": {"ticksuffix": suffix(chart.unit), "thickness": 12, "outlinewidth": 0},
        },
    )
    labelled = _labelled(chart)
    drawn.update_yaxes(
        type="category",
        categoryarray=names,
        tickvals=[names[row] for row in labelled],
        ticktext=[_label(chart, row) for row in labelled],
        range=[rows - 0.5, -0.5],
        fixedrange=rows <= _MOST_LABELLED_ROWS,
        showgrid=False,
        showline=False,
        ticks="",
        ticklabelstandoff=4,
    )
    drawn.update_xaxes(
        tickprefix=f"{escape(chart.x_label, quote=False)} ",
        showtickprefix="first",
        hoverformat=",d",
        separatethousands=True,
        range=[chart.edges[0], chart.edges[-1]],
        showgrid=False,
    )


def row_height(rows: int) -> int:
    """Pixels per row: thin where there are many, so that all of them fit on a screen."""
    return next((height for most, height in _ROW_HEIGHTS if rows <= most), _THINNEST)


def _names(chart: HeatMap) -> list[str]:
    """What rows are called under the pointer, each differently."""
    return [
        escape(f"{row.label} on {row.group}" if row.group else row.label, quote=False)
        for row in chart.rows
    ]


def _under_the_pointer(chart: HeatMap) -> np.ndarray:
    parts = np.stack([chart.most, chart.most_at, chart.most_of], axis=-1)
    exact = np.nanmax(parts, initial=0.0) < _EXACT
    return parts.astype(np.float32 if exact else np.float64)


def _hover(chart: HeatMap) -> str:
    unit, x_label = suffix(chart.unit), escape(chart.x_label, quote=False)
    who = ": the latest rank" if chart.of_latest else ""
    cell = f"<br>one cell: {escape(chart.cell, quote=False)}" if chart.cell else ""
    return (
        f"<b>%{{y}}</b>, around %{{x}}<br>%{{z:.2f}}{unit} late on average{who}"
        f"<br>%{{customdata[0]:.2f}}{unit} at most: rank %{{customdata[2]:d}} in {x_label} "
        f"%{{customdata[1]:,d}}{cell}<extra></extra>"
    )


def _add_not_measured(chart: HeatMap, drawn: go.Figure, names: list[str]) -> None:
    """A thin line through cells without a value: nothing is not nought."""
    x: list[float | None] = []
    y: list[str | None] = []
    for row, holes in enumerate(np.isnan(chart.values)):
        for begin, end in _stretches(holes):
            x += [float(chart.edges[begin]), float(chart.edges[end]), None]
            y += [names[row], names[row], None]
    if x:
        drawn.add_scatter(
            x=x,
            y=y,
            mode="lines",
            line={"width": 1, "dash": "dot", "color": _NOT_MEASURED},
            hoverinfo="skip",
        )


def _stretches(chosen: np.ndarray) -> Iterator[tuple[int, int]]:
    """Begin and end of every stretch of true values."""
    edges = np.flatnonzero(np.diff(chosen.astype(np.int8), prepend=0, append=0))
    return zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)


def _add_marks(chart: HeatMap, drawn: go.Figure, look: Look) -> None:
    """A triangle beside every emphasised row, or a bar beside many that follow each other."""
    for begin, end in _stretches(np.array([row.emphasised for row in chart.rows], bool)):
        colour = look(COLOURS["imbalance"])
        if end - begin > 1:
            drawn.add_shape(
                type="line",
                xref="paper",
                x0=1.006,
                x1=1.006,
                y0=begin - 0.4,
                y1=end - 0.6,
                line={"width": 5, "color": colour},
            )
            continue
        drawn.add_annotation(
            xref="paper",
            x=1,
            y=begin,
            xanchor="left",
            text="◀",
            showarrow=False,
            font={"size": 13, "color": colour},
        )


def _add_groups(chart: HeatMap, drawn: go.Figure, look: Look) -> bool:
    """Lines between groups, and their names at the side as far as there is room."""
    spans = []
    for name, own in groupby(range(len(chart.rows)), key=lambda row: chart.rows[row].group):
        first, *_ = members = list(own)
        spans.append((name, first, first + len(members)))
    if len(spans) < 2:
        return False
    height = row_height(len(chart.rows))
    named = False
    for name, begin, end in spans:
        room = (end - begin) * height - 6
        if begin and room > 6:
            drawn.add_hline(begin - 0.5, line={"width": 1, "color": look(MARK)})
        text = shortened(name, room * 13 / _SMALL)
        if text_width(text, _SMALL) > room or len(text) < min(len(name), 4):
            continue
        named = True
        drawn.add_annotation(
            xref="paper",
            x=1,
            xshift=_MARKS - 4,
            xanchor="left",
            y=(begin + end - 1) / 2,
            text=escape(text, quote=False),
            textangle=90,
            showarrow=False,
            font={"size": _SMALL},
        )
    return named


def _labelled(chart: HeatMap) -> list[int]:
    """Rows that have room for a label: all, or the emphasised ones and some between them."""
    rows = range(len(chart.rows))
    if len(rows) <= _MOST_LABELLED_ROWS:
        return list(rows)
    apart = len(rows) / _LABELS_OF_MANY / 2
    chosen: list[int] = []
    wanted = [row for row in rows if chart.rows[row].emphasised]
    for row in [*wanted, *rows[:: -(-len(rows) // _LABELS_OF_MANY)]]:
        if all(abs(row - other) >= apart for other in chosen):
            chosen.append(row)
    return sorted(chosen)


def _label(chart: HeatMap, row: int) -> str:
    label = escape(chart.rows[row].label, quote=False)
    return f"<b>{label}</b>" if chart.rows[row].emphasised else label

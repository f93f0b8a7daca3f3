"""Heat maps: rows of cells over the run."""

from __future__ import annotations

from itertools import groupby
from typing import Any

import numpy as np

from .. import HEAT, PALETTE
from ..axis import TEXT_SIZE, shortened, text_width
from ..heat_map import MOST_LABELLED_ROWS, HeatMap, stretches
from .plotly_parts import (
    AXIS_HEIGHT,
    SMALL,
    Drawing,
    add_across,
    add_changes,
    add_epochs,
    add_text,
    bold,
    markup,
    step_axis,
    suffix,
)

# The widths of marks, and of the names of groups next to them.
_MARKS, _GROUPS = 18, 20
# A line of labels above the cells.
_LABELS = 16
# Single precision holds no larger whole numbers exactly.
_EXACT = 2**24


def draw_heat_map(chart: HeatMap, drawn: Drawing) -> None:
    """Draw cells, missing values, marks and groups."""
    rows = len(chart.rows)
    # Unique, as tooltips show them.
    names = [
        markup(f"{row.label} on {row.group}" if row.group else row.label) for row in chart.rows
    ]
    drawn.add_trace(
        "heatmap",
        x=chart.edges,
        y=names,
        z=chart.values.astype(np.float32),
        customdata=_tooltip_values(chart),
        hovertemplate=_hover(chart),
        hoverongaps=False,
        coloraxis="coloraxis",
        showlegend=False,
    )
    _add_not_measured(chart, drawn, names)
    _add_marks(chart, drawn)
    groups = _add_groups(chart, drawn)
    add_epochs(drawn, chart.marks)
    above = _LABELS if chart.marks else 0
    add_changes(drawn, chart.changes, yanchor="bottom", yshift=above)
    above += _LABELS if chart.changes else 0
    drawn.update(
        height=chart.row_height * rows + AXIS_HEIGHT + above,
        showlegend=False,
        dragmode="zoom",
        margin={"t": 8 + above, "r": _MARKS + (_GROUPS if groups else 0)},
        coloraxis={
            "cmin": chart.least,
            "cmax": chart.full,
            "colorscale": [[at / (len(HEAT) - 1), colour] for at, colour in enumerate(HEAT)],
            "colorbar": {"ticksuffix": suffix(chart.unit), "thickness": 12, "outlinewidth": 0},
        },
    )
    labelled = chart.labelled_rows
    drawn.update(
        xaxis={"range": [*map(float, chart.edges[[0, -1]])], **step_axis(chart.x_label)},
        yaxis={
            "type": "category",
            "categoryarray": names,
            "tickvals": [names[row] for row in labelled],
            "ticktext": [
                bold(chart.rows[row].label, chart.rows[row].emphasised) for row in labelled
            ],
            "range": [rows - 0.5, -0.5],
            "fixedrange": rows <= MOST_LABELLED_ROWS,
            "showgrid": False,
            "showline": False,
            "ticks": "",
            "ticklabelstandoff": 4,
        },
    )


def _tooltip_values(chart: HeatMap) -> np.ndarray:
    parts = np.stack([chart.most, chart.most_at, chart.most_of], axis=-1)
    exact = np.nanmax(parts, initial=0.0) < _EXACT
    return parts.astype(np.float32 if exact else np.float64)


def _hover(chart: HeatMap) -> str:
    unit, x_label = suffix(chart.unit), markup(chart.x_label)
    words = chart.words
    who = f": the {words.most} rank" if chart.of_latest else ""
    cell = f"<br>one cell: {markup(chart.cell)}" if chart.cell else ""
    return (
        f"<b>%{{y}}</b>, around %{{x}}<br>%{{z:.2f}}{unit} {words.mean}{who}"
        f"<br>%{{customdata[0]:.2f}}{unit} at most: rank %{{customdata[2]:d}} at {x_label} "
        f"%{{customdata[1]:,d}}{cell}<extra></extra>"
    )


def _add_not_measured(chart: HeatMap, drawn: Drawing, names: list[str]) -> None:
    """Draw a thin line through cells without a value, which are not zero."""
    x: list[float | None] = []
    y: list[str | None] = []
    for row, holes in enumerate(np.isnan(chart.values)):
        for start, end in stretches(holes):
            x += [float(chart.edges[start]), float(chart.edges[end]), None]
            y += [names[row], names[row], None]
    if x:
        drawn.add_trace(
            "scatter",
            x=x,
            y=y,
            mode="lines",
            line={"width": 1, "dash": "dot", "color": PALETTE["muted"]},
            hoverinfo="skip",
        )


def _add_marks(chart: HeatMap, drawn: Drawing) -> None:
    """Draw a triangle next to every emphasised row, or a bar next to adjacent ones."""
    for start, end in stretches(np.array([row.emphasised for row in chart.rows], bool)):
        colour = PALETTE["imbalance"]
        if end - start > 1:
            drawn.add_shape(
                "line",
                xref="paper",
                x0=1.006,
                x1=1.006,
                y0=start - 0.4,
                y1=end - 0.6,
                line={"width": 5, "color": colour},
            )
            continue
        add_text(drawn, "◀", colour, x=1, xref="paper", xanchor="left", y=start)


def _add_groups(chart: HeatMap, drawn: Drawing) -> bool:
    """Draw lines between groups, and their names at the side if they fit."""
    spans = []
    for name, group in groupby(range(len(chart.rows)), key=lambda row: chart.rows[row].group):
        first, *_ = members = list(group)
        spans.append((name, first, first + len(members)))
    if len(spans) < 2:
        return False
    height = chart.row_height
    named = False
    for name, start, end in spans:
        room = (end - start) * height - 6
        if start and room > 6:
            line = {"width": 1, "color": PALETTE["muted"]}
            add_across(drawn, "line", start - 0.5, start - 0.5, line=line)
        text = shortened(name, room * TEXT_SIZE / SMALL)
        if text_width(text, SMALL) > room or len(text) < min(len(name), 4):
            continue
        named = True
        side: dict[str, Any] = {"x": 1, "xref": "paper", "xshift": _MARKS - 4, "xanchor": "left"}
        middle = (start + end - 1) / 2
        add_text(drawn, text, PALETTE["ink"], y=middle, textangle=90, **side)
    return named

"""What all Plotly figures share: light and dark, axes, and numbers with their units."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

import plotly.graph_objects as go

from stallscope.formatting.numbers import between
from stallscope.formatting.sums import SumColumn

from ..charts import Segment
from ..palette import COLOURS, Colour

_FONT = "-apple-system, BlinkMacSystemFont, 'Segoe UI', Roboto, Helvetica, Arial, sans-serif"
TEXT = Colour("#343a40", "#d5d8dc")
GRID = Colour("#e6e8eb", "#3a3d42")
MARK = Colour("#868e96", "#7b828a")
HOVER = Colour("#ffffff", "#25262b")

AXIS_HEIGHT = 40


@dataclass(frozen=True)
class Look:
    """Light or dark: picks from pairs of colours."""

    dark: bool

    def __call__(self, colour: Colour) -> str:
        return colour.dark if self.dark else colour.light

    def of(self, name: str) -> str:
        return self(COLOURS[name])


def layout(look: Look) -> go.Layout:
    axis = {
        "gridcolor": look(GRID),
        "zeroline": False,
        "linecolor": look(GRID),
        "tickfont": {"size": 12},
        "automargin": True,
        "nticks": 6,
    }
    return go.Layout(
        template="none",
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"family": _FONT, "size": 13, "color": look(TEXT)},
        margin={"l": 8, "r": 16, "t": 8, "b": 32, "pad": 4},
        hoverlabel={
            "bgcolor": look(HOVER),
            "bordercolor": look(GRID),
            "font": {"family": _FONT, "size": 13, "color": look(TEXT)},
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
            "color": look(MARK),
            "activecolor": look(TEXT),
        },
        uniformtext={"minsize": 12, "mode": "hide"},
        dragmode=False,
        xaxis=axis,
        yaxis=axis,
    )


def rows_axis(drawn: go.Figure, labels: list[str]) -> None:
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


def suffix(unit: str) -> str:
    return f" {escape(unit, quote=False)}"


def interval_lines(segment: Segment, printed: SumColumn) -> str:
    """A line with the segment's interval in the unit of its figure; empty without one."""
    if segment.ci95 is None:
        return ""
    low, high = (end * printed.scale.factor for end in segment.ci95)
    return f"<br>95% interval: {between(low, high)} {printed.scale.unit}"

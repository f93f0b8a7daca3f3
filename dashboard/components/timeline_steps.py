"""The time of each step's allreduces by part, from a Horovod Timeline."""

from __future__ import annotations

from typing import Any

import numpy as np
import plotly.graph_objects as go
from dash import html

from stallscope.analysis.network.tensors import AllreduceSteps
from stallscope.arrays.types import Floats
from stallscope.charts.plotly_figures.look import Look
from stallscope.formatting.lists import counted
from stallscope.formatting.numbers import finite
from stallscope.reports.document import NOTHING
from stallscope.text.cells import Cells

from .basics import labelled_swatch
from .chart_card import custom_chart_card
from .legend import legend
from .tables import data_table

# Neither a chart nor a table can show more.
_MOST_POINTS = 200
# The parts' labels, and the colours that they borrow: dashes distinguish them, too.
_PARTS = (
    ("negotiation", "negotiation", "imbalance", "dashdot"),
    ("wait", "waiting for data and in queues", "input", "dot"),
    ("copy", "copies to and from fusion buffers", "compute", "dash"),
    ("transfer", "transfer", "allreduce", "solid"),
)


def timeline_steps_card(steps: AllreduceSteps) -> Any:
    """Chart the means of adjacent steps, and tabulate them one click away. None without steps."""
    if not len(steps):
        return None
    width = -(-len(steps) // _MOST_POINTS)
    first = np.arange(0, len(steps), width)
    every = {label: _means(getattr(steps, f"{name}_ms"), first) for name, label, _, _ in _PARTS}
    # Activities that are not in the timeline are missing, not 0.
    parts = {label: means for label, means in every.items() if np.nansum(means) > 0}
    if not parts:
        return None

    def draw(drawn: go.Figure, look: Look) -> None:
        for _, label, colour, dash in _PARTS:
            if label in parts:
                drawn.add_scatter(
                    x=first,
                    y=parts[label],
                    name=label,
                    mode="lines" if len(first) > 1 else "markers",
                    line={"color": look.of(colour), "width": 2, "dash": dash},
                    hovertemplate=f"step %{{x:,}}: {label} %{{y:.3g}} ms<extra></extra>",
                )
        drawn.update_xaxes(title="step of the timeline")
        drawn.update_yaxes(title="ms")

    rows = [
        (int(at), *(finite(float(means[number])) for means in parts.values()))
        for number, at in enumerate(first)
    ]
    of = "" if width == 1 else f" Each point is the mean of {width:,} steps."
    return custom_chart_card(
        "timeline-steps",
        "Allreduces of each step",
        f"{counted(len(steps), 'step')} as rank 0 went through them.{of} Times are those in which any "
        "tensor was at it: they overlap, and do not add up.",
        draw,
        (("step", *(f"{label}_ms" for label in parts)), rows),
        legend(labelled_swatch(colour, label) for _, label, colour, _ in _PARTS if label in parts),
        _table(first, parts),
    )


def _means(values: Floats, first: np.ndarray[Any, np.dtype[np.int64]]) -> Floats:
    """Average over the steps from each of the first ones to the next."""
    return np.add.reduceat(values.astype(np.float64), first) / np.diff(
        np.append(first, len(values))
    )


def _table(first: np.ndarray[Any, np.dtype[np.int64]], parts: dict[str, Floats]) -> Any:
    cells = Cells.for_all(value for means in parts.values() for value in means.tolist())
    head = ["Step", *(f"{label.capitalize()}, {cells.unit}" for label in parts)]
    rows = [
        [f"{at:,}", *(_cell(cells, means[number]) for means in parts.values())]
        for number, at in enumerate(first.tolist())
    ]
    table = data_table("Allreduces of each step", head, rows, words=())
    return html.Details([html.Summary("As a table"), table])


def _cell(cells: Cells, value: float) -> str:
    return cells.plain(value) if np.isfinite(value) else NOTHING

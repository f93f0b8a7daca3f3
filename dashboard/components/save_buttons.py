"""Buttons that save a chart as it is seen, and its numbers: ``assets/save.js``."""

from __future__ import annotations

from typing import Any

import dash_mantine_components as dmc
from dash import html

from .basics import aria

_KINDS = (
    ("png", "PNG", "Save as PNG: what is seen"),
    ("svg", "SVG", "Save as SVG: what is seen, to be scaled"),
    ("csv", "CSV", "Save as CSV: its numbers"),
)


def chart_head(title: str, name: str) -> Any:
    """Make a chart's title with its buttons; ``name`` is unique on its page."""
    return html.Div(
        [dmc.Title(title, order=2, size="h4"), _save_buttons(title, name)], className="chart-head"
    )


def _save_buttons(title: str, name: str) -> Any:
    """Make the buttons of a chart; ``name`` is unique on its page."""
    buttons = [
        html.Button(
            words,
            className="save-button",
            title=label,
            **_data(kind, name, label),
        )
        for kind, words, label in _KINDS
    ]
    return html.Div(buttons, className="save-buttons", role="group", **aria(label=f"Save: {title}"))


def _data(kind: str, name: str, label: str) -> Any:
    spoken = aria(label=label.partition(":")[0])
    return {"data-save": kind, "data-chart": name, **spoken}

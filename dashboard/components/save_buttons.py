"""Buttons that save a picture as it is seen, and the numbers behind it: ``assets/save.js``."""

from __future__ import annotations

from typing import Any

from dash import html

from .aria import aria

_KINDS = (
    ("png", "PNG", "Save as PNG: what is seen"),
    ("svg", "SVG", "Save as SVG: what is seen, to be scaled"),
    ("csv", "CSV", "Save as CSV: its numbers"),
)


def save_buttons(title: str, name: str) -> Any:
    """The buttons of a picture; ``name`` is the picture's own on its page."""
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
    said = aria(label=label.partition(":")[0])
    return {"data-save": kind, "data-chart": name, **said}

"""The way from each page of a run to the others."""

from __future__ import annotations

from typing import Any

import dash_mantine_components as dmc
from dash import html

from ..addresses import run_address
from .aria import aria

#: What a run's pages are called, and the last part of their addresses.
TABS: dict[str, str] = {"Overview": ""}


def run_tabs(run_id: str, baseline_id: str | None, current: str) -> Any:
    """Links to the pages of a run, held against the same baseline; the current one is marked."""
    links = [
        dmc.Anchor(
            name,
            href=run_address(run_id, baseline_id, page=page),
            refresh=False,
            underline="never",
            className="run-tab",
            **(aria(current="page") if name == current else {}),
        )
        for name, page in TABS.items()
    ]
    return html.Nav(links, className="run-tabs", **aria(label="Pages of this run"))

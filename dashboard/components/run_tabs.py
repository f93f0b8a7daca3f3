"""Links from each page of a run to the others."""

from __future__ import annotations

from typing import Any

import dash_mantine_components as dmc
from dash import html

from ..addresses import run_address
from .aria import aria

#: Titles of a run's pages, and the last part of their addresses.
TABS: dict[str, str] = {
    "Overview": "",
    "Live": "live",
    "Timeline": "timeline",
    "Stragglers": "stragglers",
    "Baseline": "baseline",
    "Communication": "communication",
    "Log health": "health",
}

_ALWAYS = [name for name in TABS if name != "Live"]


def run_tabs(run_id: str, baseline_id: str | None, current: str, *, live: bool) -> Any:
    """Link to the pages of a run, with the same baseline; the current one is marked.

    Args:
        run_id: the run.
        baseline_id: what it is held against.
        current: the tab that is open.
        live: whether the run can be watched while it is recorded.
    """
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
        if live or name in (current, *_ALWAYS)
    ]
    return html.Nav(links, className="run-tabs", **aria(label="Pages of this run"))

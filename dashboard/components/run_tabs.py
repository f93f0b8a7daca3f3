"""Links from each page of a run to the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dash import html

from .basics import aria, link

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


def run_tabs(address_of: Callable[[str], str], current: str, *, live: bool) -> Any:
    """Link to the pages of a run; the current one is marked.

    Args:
        address_of: returns the address of a page of the run.
        current: the tab that is open.
        live: whether the run can be watched while it is recorded.
    """
    links = [
        link(
            name,
            address_of(page),
            underline="never",
            className="run-tab",
            **(aria(current="page") if name == current else {}),
        )
        for name, page in TABS.items()
        if live or name in (current, *_ALWAYS)
    ]
    return html.Nav(links, className="run-tabs", **aria(label="Pages of this run"))

"""The pages of a run, the links between them, and the page for each finding."""

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
#: A key of ``TABS`` per finding code. Findings about settings have no page.
PAGE_OF: dict[str, str] = {
    "causality_broken": "Log health",
    "checkpoint_on_all_ranks": "Timeline",
    "clock_jumped": "Log health",
    "clocks_unsteady": "Log health",
    "epochs_of_different_lengths": "Log health",
    "host_stamps_only": "Log health",
    "missing_ranks": "Log health",
    "no_baseline": "Baseline",
    "not_ended": "Log health",
    "one_rank_only": "Log health",
    "rank_0_alone": "Timeline",
    "rank_0_extra_work": "Stragglers",
    "ranks_apart": "Timeline",
    "slow_every_nth_step": "Timeline",
    "slow_first_steps": "Timeline",
    "step_time_changed": "Timeline",
    "unequal_steps": "Log health",
    "uneven_batches": "Stragglers",
    "uneven_shards": "Stragglers",
    "validation_on_all_ranks": "Timeline",
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

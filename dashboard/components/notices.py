"""Findings, warnings, missing pages, and the tabs of a run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import dash_mantine_components as dmc
from dash import html

from stallscope.analysis.findings.finding import Finding

from ..addresses import run_address
from .basics import advice_steps, aria, card, link, points
from .data_tables import folded

#: For runs whose logs were deleted while the dashboard shows them.
LOGS_DELETED = (
    "The logs of this run were deleted after the dashboard read them. Its pages show what was read, "
    "until the dashboard ends: save the report first if you need it."
)
# Logs that are not whole can have one for each rank.
_MOST_WARNINGS = 6
_COLOURS = {"error": "red", "warning": "orange", "info": "blue"}

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
    "pipeline_stages": "Stragglers",
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


def findings_card(findings: Sequence[Finding], run_id: str | None, baseline_id: str | None) -> Any:
    """List findings, with links to the pages of a run that show them; without links if it is None."""
    nothing = dmc.Text("No findings in these logs.", size="sm", c="dimmed")
    content = [_finding(finding, run_id, baseline_id) for finding in findings] or [nothing]
    return card("Findings", html.Div(content, className="findings"))


def warnings_card(warnings: Sequence[str]) -> Any:
    """List the limits of the figures, many of them folded; None without any."""
    if not warnings:
        return None
    shown, more = warnings[:_MOST_WARNINGS], warnings[_MOST_WARNINGS:]
    fold = folded(f"{len(more):,} more", points(more)) if more else None
    return card("What limits these numbers", points(shown), fold)


def deleted_card() -> Any:
    """Say that the logs of a run were deleted while the dashboard shows it."""
    return card("Deleted logs", dmc.Text(LOGS_DELETED, size="sm"))


def notice(title: str, text: str) -> Any:
    """Show an error as a page's head."""
    return dmc.Box(
        [dmc.Title(title, order=1, size="h2", tabIndex=-1), dmc.Text(text, mt="xs", maw=680)]
    )


def _finding(finding: Finding, run_id: str | None, baseline_id: str | None) -> Any:
    page = PAGE_OF.get(finding.code)
    address = None
    if page is not None and run_id is not None:
        address = run_address(run_id, baseline_id, page=TABS[page])
    return dmc.Box(
        [
            dmc.Group(
                [
                    dmc.Badge(finding.severity, color=_COLOURS[finding.severity], variant="light"),
                    dmc.Title(finding.title, order=3, size="h6"),
                ],
                gap="xs",
            ),
            dmc.Text(finding.evidence, size="sm", mt=4),
            *advice_steps(finding.advice),
            None if address is None else link(f"See it: {page}", address, size="sm"),
        ]
    )


# -- The pages of a run, the links between them, and the page for each finding --------------------


def run_tabs(address_of: Callable[[str], str], current: str, without: Collection[str]) -> Any:
    """Link to the pages of a run; the current one is marked.

    Args:
        address_of: returns the address of a page of the run.
        current: the tab that is open.
        without: tabs that are left out unless they are open.
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
        if name == current or name not in without
    ]
    return html.Nav(links, className="run-tabs", **aria(label="Pages of this run"))

"""Findings, warnings, and missing pages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dash_mantine_components as dmc
from dash import html

from stallscope.analysis.findings.finding import Finding

from ..addresses import run_address
from .basics import advice_steps, card, link, points
from .run_tabs import PAGE_OF, TABS
from .tables import folded

#: For runs whose logs were deleted while the dashboard shows them.
LOGS_DELETED = (
    "The logs of this run were deleted after the dashboard read them. Its pages show what was read, "
    "until the dashboard ends: save the report first if you need it."
)
# Logs that are not whole can have one for each rank.
_MOST_WARNINGS = 6
_COLOURS = {"error": "red", "warning": "orange", "info": "blue"}


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

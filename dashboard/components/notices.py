"""Findings, warnings, and missing pages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dash_mantine_components as dmc

from stallscope.analysis.findings.finding import Finding

from ..addresses import run_address
from ..findings_pages import page_of
from .coded_words import coded_words
from .run_tabs import TABS

_COLOURS = {"error": "red", "warning": "orange", "info": "blue"}


def findings_card(findings: Sequence[Finding], run_id: str, baseline_id: str | None) -> Any:
    """List findings, with links to the pages that show them."""
    content = (
        [_finding(finding, run_id, baseline_id) for finding in findings]
        if findings
        else [dmc.Text("No findings in these logs.", size="sm", c="dimmed")]
    )
    return dmc.Card(
        [dmc.Title("Findings", order=2, size="h4", mb="xs"), dmc.Stack(content, gap="md")],
        withBorder=True,
        h="100%",
    )


def warnings_card(warnings: Sequence[str]) -> Any:
    """List what limits the numbers; None without limits."""
    if not warnings:
        return None
    return dmc.Card(
        [
            dmc.Title("What limits these numbers", order=2, size="h4", mb="xs"),
            dmc.List([dmc.ListItem(warning) for warning in warnings], size="sm", spacing=4),
        ],
        withBorder=True,
    )


def notice(title: str, text: str) -> Any:
    """Show an error as a page's head."""
    return dmc.Box(
        [dmc.Title(title, order=1, size="h2", tabIndex=-1), dmc.Text(text, mt="xs", maw=680)]
    )


def _finding(finding: Finding, run_id: str, baseline_id: str | None) -> Any:
    page = page_of(finding)
    link = None
    if page is not None:
        link = dmc.Anchor(
            f"See it: {page}",
            href=run_address(run_id, baseline_id, page=TABS[page]),
            refresh=False,
            size="sm",
        )
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
            dmc.Text(coded_words(finding.advice), size="sm", c="dimmed", mt=2),
            link,
        ]
    )

"""Findings lead to the page that shows them."""

from __future__ import annotations

import re
from pathlib import Path

from stallscope.analysis.findings.finding import Finding
from stallscope.analysis.gains.what_if import Advice
from stallscope.dashboard.components.notices import PAGE_OF, TABS, findings_card

from .content import of_type

REPORT = Path(__file__).parents[2] / "docs" / "report.md"


def test_every_page_and_every_finding_is_there() -> None:
    cells = re.findall(r"^\| (`.*?) \|", REPORT.read_text(), re.MULTILINE)
    documented = set(re.findall(r"`(\w+)`", " ".join(cells)))
    assert set(PAGE_OF) <= documented
    assert set(PAGE_OF.values()) <= set(TABS)


def test_a_finding_has_a_link_where_there_is_something_to_see() -> None:
    findings = [
        Finding("step_time_changed", "warning", "Slower", "From step 3 on.", (Advice("Look"),)),
        Finding("timeline_on", "warning", "Timeline", "It was on.", (Advice("Turn it off"),)),
    ]
    links = of_type(findings_card(findings, "run-1", "base"), "Anchor")
    assert [link.href for link in links] == ["/run/run-1/timeline?baseline=base"]
    assert [link.children for link in links] == ["See it: Timeline"]

"""Show which logs of a run were read, which are missing, and how accurate they are."""

from __future__ import annotations

from typing import Any, ClassVar

import dash_mantine_components as dmc

from stallscope.analysis.views.log_health import rank_logs
from stallscope.text.log_health import health, lacks

from ..components.basics import card, points, sentence_card
from ..components.health_tables import (
    clocks_card,
    problems_card,
    ranks_card,
    recorder_card,
    stamps_card,
)
from ..components.notices import findings_card, warnings_card
from ..findings_pages import PAGE_OF
from ..store import RunStore
from .run_page import RunPage, RunRequest, side_by_side


class HealthPage(RunPage):
    path: ClassVar[str] = "/run/<run_id>/health"
    tab: ClassVar[str] = "Log health"

    def parts(self, request: RunRequest, store: RunStore) -> list[Any]:
        analysis = request.analysis
        ranks = rank_logs(analysis.run)
        missing = lacks(analysis, ranks)
        title, text = health(analysis, ranks)
        problems = {str(problem) for problem in analysis.run.problems}
        findings = [one for one in analysis.findings if PAGE_OF.get(one.code) == self.tab]
        return [
            sentence_card(title, text, "imbalance" if missing else "other"),
            side_by_side(
                _missing(missing),
                findings_card(findings, request.run_id, request.baseline_id),
            ),
            ranks_card(ranks),
            problems_card(analysis.run),
            side_by_side(clocks_card(analysis), stamps_card(analysis.run)),
            recorder_card(analysis.run, ranks),
            warnings_card([text for text in analysis.warnings if text not in problems]),
        ]


def _missing(missing: list[str]) -> Any:
    nothing = dmc.Text("Nothing is missing.", size="sm", c="dimmed")
    return card("Missing data", points(missing) if missing else nothing)

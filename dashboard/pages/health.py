"""Show which logs of a run were read, which are missing, and how accurate they are."""

from __future__ import annotations

from typing import Any, ClassVar

import dash_mantine_components as dmc

from stallscope.analysis import Analysis
from stallscope.analysis.views.log_health import rank_logs
from stallscope.text.log_health import health, lacks

from ..components.health_tables import (
    clocks_card,
    problems_card,
    ranks_card,
    recorder_card,
    stamps_card,
)
from ..components.notices import findings_card, warnings_card
from ..components.sentence_card import sentence_card
from ..store import RunStore
from .run_page import RunPage, RunRequest, side_by_side

# Findings about the logs; all others are about the job.
_ABOUT_LOGS = frozenset(
    {
        "one_rank_only",
        "missing_ranks",
        "host_stamps_only",
        "not_ended",
        "clock_jumped",
        "causality_broken",
        "clocks_unsteady",
    }
)


class HealthPage(RunPage):
    path: ClassVar[str] = "/run/<run_id>/health"
    tab: ClassVar[str] = "Log health"

    def parts(self, request: RunRequest, store: RunStore) -> list[Any]:
        analysis = request.analysis
        ranks = rank_logs(analysis.run)
        missing = lacks(analysis, ranks)
        title, text = health(analysis, ranks)
        problems = {str(problem) for problem in analysis.run.problems}
        return [
            sentence_card(title, text, "imbalance" if missing else "other"),
            side_by_side(
                _missing(missing),
                findings_card(_findings(analysis), request.run_id, request.baseline_id),
            ),
            ranks_card(ranks),
            problems_card(analysis.run),
            side_by_side(clocks_card(analysis), stamps_card(analysis.run)),
            recorder_card(analysis.run, ranks),
            warnings_card([text for text in analysis.warnings if text not in problems]),
        ]


def _findings(analysis: Analysis) -> list[Any]:
    return [finding for finding in analysis.findings if finding.code in _ABOUT_LOGS]


def _missing(missing: list[str]) -> Any:
    nothing = dmc.Text("Nothing is missing.", size="sm", c="dimmed")
    return dmc.Card(
        [
            dmc.Title("Missing data", order=2, size="h4", mb="xs"),
            dmc.List([dmc.ListItem(text) for text in missing], size="sm", spacing=4)
            if missing
            else nothing,
        ],
        withBorder=True,
        h="100%",
    )

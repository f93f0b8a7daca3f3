"""Give an overview of a run: first the verdict, then charts, then tables."""

from __future__ import annotations

from typing import Any, ClassVar

from stallscope.analysis import ENTRIES, Analysis
from stallscope.analysis.ledger.ledger import CAUSES
from stallscope.charts.charts import (
    baseline_chart,
    cause_chart,
    entry_name,
    job_chart,
    ranks_chart,
    step_time_chart,
)
from stallscope.reports.run.tables import (
    GAINS_FROM,
    baselines_table,
    cause_table,
    ledger_table,
    stragglers_table,
)
from stallscope.text.gains import gains

from ..components.figures_row import figures_row
from ..components.notices import findings_card, warnings_card
from ..components.tables import gains_table, ranks_table, sums_card, table_card, words_card
from ..components.verdict_card import verdict_card
from ..store import RunStore
from .run_page import RunPage, RunRequest, optional_chart, side_by_side


class OverviewPage(RunPage):
    path: ClassVar[str] = "/run/<run_id>"
    tab: ClassVar[str] = "Overview"

    def parts(self, request: RunRequest, store: RunStore) -> list[Any]:
        analysis = request.analysis
        return [
            side_by_side(verdict_card(analysis), _gains(analysis)),
            figures_row(analysis),
            side_by_side(
                optional_chart("by-cause", cause_chart(analysis)),
                optional_chart("baseline", baseline_chart(analysis)),
            ),
            optional_chart("ranks", ranks_chart(analysis)),
            words_card(stragglers_table(analysis)),
            optional_chart("step-time", step_time_chart(analysis)),
            side_by_side(
                optional_chart("job", job_chart(analysis)),
                findings_card(analysis.findings, request.run_id, request.baseline_id),
            ),
            *_ledgers(analysis),
            words_card(baselines_table(analysis)),
            _ranks(analysis),
            warnings_card(analysis.warnings),
        ]

    def title(self, analysis: Analysis) -> str:
        return analysis.run.name


def _gains(analysis: Analysis) -> Any:
    if not gains(analysis):
        return None
    return table_card(
        "Potential gains",
        GAINS_FROM[analysis.predicted_from],
        gains_table(analysis),
    )


def _ledgers(analysis: Analysis) -> list[Any]:
    """Return the tables of the step by cause and with imbalance; nothing without stages."""
    if not analysis.by_cause:
        return []
    return [
        sums_card(cause_table(analysis), [entry_name(name, analysis) for name in CAUSES]),
        sums_card(ledger_table(analysis), [entry_name(name, analysis) for name in ENTRIES]),
    ]


def _ranks(analysis: Analysis) -> Any:
    return table_card("Ranks", "The means per step of each rank.", ranks_table(analysis))

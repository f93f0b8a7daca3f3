"""A run at a glance: the verdict first, then the pictures, then the numbers."""

from __future__ import annotations

from typing import Any, ClassVar

from stallscope.analysis import ENTRIES, Analysis
from stallscope.analysis.ledger.ledger import CAUSES
from stallscope.charts.charts import (
    Chart,
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

from ..components.chart_card import chart_card
from ..components.figures_row import figures_row
from ..components.notices import findings_card, warnings_card
from ..components.tables import gains_table, ranks_table, sums_card, table_card, words_card
from ..components.verdict_card import verdict_card
from ..store import RunStore
from .run_page import RunPage, Shown, side_by_side


class OverviewPage(RunPage):
    path: ClassVar[str] = "/run/<run_id>"
    tab: ClassVar[str] = "Overview"

    def parts(self, shown: Shown, store: RunStore) -> list[Any]:
        analysis = shown.analysis
        return [
            side_by_side(verdict_card(analysis), _gains(analysis)),
            figures_row(analysis),
            side_by_side(
                _chart("by-cause", cause_chart(analysis)),
                _chart("baseline", baseline_chart(analysis)),
            ),
            _chart("ranks", ranks_chart(analysis)),
            words_card(stragglers_table(analysis)),
            _chart("step-time", step_time_chart(analysis)),
            side_by_side(
                _chart("job", job_chart(analysis)),
                findings_card(analysis.findings, shown.run_id, shown.baseline_id),
            ),
            *_ledgers(analysis),
            words_card(baselines_table(analysis)),
            _ranks(analysis),
            warnings_card(analysis.warnings),
        ]

    def title(self, analysis: Analysis) -> str:
        return analysis.run.name


def _chart(name: str, chart: Chart | None) -> Any:
    return None if chart is None else chart_card(name, chart)


def _gains(analysis: Analysis) -> Any:
    if not gains(analysis):
        return None
    return table_card(
        "Potential gains",
        GAINS_FROM[analysis.predicted_from],
        gains_table(analysis),
    )


def _ledgers(analysis: Analysis) -> list[Any]:
    """The step by cause, then with imbalance; nothing without stages."""
    if not analysis.by_cause:
        return []
    return [
        sums_card(cause_table(analysis), [entry_name(name, analysis) for name in CAUSES]),
        sums_card(ledger_table(analysis), [entry_name(name, analysis) for name in ENTRIES]),
    ]


def _ranks(analysis: Analysis) -> Any:
    return table_card("Ranks", "Every rank's own means per step.", ranks_table(analysis))

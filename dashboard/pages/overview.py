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
    baselines_table,
    cause_table,
    gains_table,
    ledger_table,
    ranks_table,
    stragglers_table,
)

from ..components.chart_card import chart_card
from ..components.figures_row import figures_row
from ..components.notices import findings_card, warnings_card
from ..components.tables import data_card, sums_card, words_card
from ..components.verdict_card import verdict_card
from ..store import RunStore
from .run_page import RunPage, RunRequest, side_by_side


class OverviewPage(RunPage):
    path: ClassVar[str] = "/run/<run_id>"
    tab: ClassVar[str] = "Overview"

    def parts(self, request: RunRequest, store: RunStore) -> list[Any]:
        analysis = request.analysis
        return [
            side_by_side(verdict_card(analysis), words_card(gains_table(analysis))),
            figures_row(analysis),
            side_by_side(
                chart_card("by-cause", cause_chart(analysis)),
                chart_card("baseline", baseline_chart(analysis)),
            ),
            chart_card("ranks", ranks_chart(analysis)),
            words_card(stragglers_table(analysis)),
            chart_card("step-time", step_time_chart(analysis)),
            side_by_side(
                chart_card("job", job_chart(analysis)),
                findings_card(analysis.findings, request.run_id, request.baseline_id),
            ),
            *_ledgers(analysis),
            words_card(baselines_table(analysis)),
            _ranks(analysis),
            warnings_card(analysis.warnings),
        ]

    def title(self, analysis: Analysis) -> str:
        return analysis.run.name


def _ledgers(analysis: Analysis) -> list[Any]:
    """Return the tables of the step by cause and with imbalance; nothing without stages."""
    if not analysis.by_cause:
        return []
    return [
        sums_card(cause_table(analysis), [entry_name(name, analysis) for name in CAUSES]),
        sums_card(ledger_table(analysis), [entry_name(name, analysis) for name in ENTRIES]),
    ]


def _ranks(analysis: Analysis) -> Any:
    """Return the table of all ranks, stragglers first."""
    named = set(analysis.bottleneck.ranks)
    ordered = sorted(analysis.ranks, key=lambda rank: (rank.rank not in named, rank.rank))
    table = ranks_table(analysis, ranks=ordered)
    rows = [
        (f"{rank} (slow)" if index in table.emphasised else rank, *cells)
        for index, (rank, *cells) in enumerate(table.rows)
    ]
    note = "The means per step of each rank."
    return data_card(table.title, note, table.columns, rows, text_columns=2)

"""Compare a run with its baselines: the cost of real data and the cost of scale."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

from stallscope.analysis import Analysis
from stallscope.charts.against_baselines import decomposition_chart, jobs_chart
from stallscope.charts.compared_bars import stages_chart
from stallscope.reports.run.loader_tables import rates_table, stages_table, trials_table
from stallscope.reports.run.step_tables import baselines_table
from stallscope.text.baselines import against

from ..components.baseline_howto import choices_card, howto_card
from ..components.baseline_tables import facts_card, jobs_table, throughput_card
from ..components.basics import sentence_card
from ..components.chart_card import chart_card, picture
from ..components.tables import AS_A_TABLE, folded_table, text_table_card
from ..store import RunStore
from .run_page import RunPage, RunRequest, side_by_side

_DEFINITION = (
    "A baseline is a run of the same model, ranks and batch size on synthetic data: random batches in "
    "memory. The difference between a run and its baseline is the cost of real data."
)


class BaselinePage(RunPage):
    path: ClassVar[str] = "/run/<run_id>/baseline"
    tab: ClassVar[str] = "Baseline"

    def parts(self, request: RunRequest, store: RunStore) -> list[Any]:
        analysis = request.analysis
        has_baseline = analysis.baseline is not None
        return [
            *(_comparison(analysis) if has_baseline else _no_baseline(request, store)),
            throughput_card(analysis),
            text_table_card(rates_table(analysis)),
            text_table_card(stages_table(analysis)),
            text_table_card(trials_table(analysis)),
            side_by_side(
                chart_card(
                    "jobs", jobs_chart(analysis), below=[folded_table(jobs_table(analysis))]
                ),
                facts_card(analysis),
            ),
        ]


def _comparison(analysis: Analysis) -> list[Any]:
    losses, table = decomposition_chart(analysis), baselines_table(analysis)
    if losses is not None and table is not None:
        # The chart above the table begins with the same sentence.
        table = replace(table, note=table.note.removeprefix(losses.sentence).strip())
    return [
        sentence_card(*against(analysis), colour="input"),
        side_by_side(
            picture("decomposition", losses, folded_table(table, AS_A_TABLE)),
            chart_card("stages", stages_chart(analysis)),
        ),
    ]


def _no_baseline(request: RunRequest, store: RunStore) -> list[Any]:
    run = request.analysis.run
    title = "No baseline is chosen"
    if run.synthetic:
        title = "This run is on synthetic data: it is a baseline itself"
    return [
        sentence_card(title, _DEFINITION),
        None if run.synthetic else howto_card(run.fact("framework")),
        choices_card(request.run_id, store.candidates(request.run_id)),
    ]

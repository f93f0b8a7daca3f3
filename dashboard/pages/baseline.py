"""A run against its baselines: what real data cost, what scale costs, and whether that is known."""

from __future__ import annotations

from typing import Any, ClassVar

from stallscope.charts.against_baselines import decomposition_chart, jobs_chart
from stallscope.charts.charts import Chart, baseline_chart
from stallscope.charts.compared_bars import stages_chart
from stallscope.reports.run.tables import baselines_table
from stallscope.text.baselines import against

from ..components.baseline_howto import choices_card, howto_card
from ..components.baseline_tables import facts_card, jobs_card, loader_cards, throughput_card
from ..components.chart_card import chart_card
from ..components.sentence_card import sentence_card
from ..components.tables import words_card
from ..store import RunStore
from .run_page import RunPage, Shown, side_by_side

_WHAT = (
    "A baseline is a run of the same model, ranks and batch size on synthetic data: random batches held "
    "in memory. What a run is slower than its baseline is what real data cost it."
)


class BaselinePage(RunPage):
    path: ClassVar[str] = "/run/<run_id>/baseline"
    tab: ClassVar[str] = "Baseline"

    def parts(self, shown: Shown, store: RunStore) -> list[Any]:
        first = _compared(shown) if shown.analysis.baseline is not None else _alone(shown, store)
        analysis = shown.analysis
        return [
            *first,
            _chart("stages", stages_chart(analysis)),
            throughput_card(analysis),
            *loader_cards(analysis),
            side_by_side(_chart("jobs", jobs_chart(analysis)), jobs_card(analysis)),
            facts_card(analysis),
        ]


def _compared(shown: Shown) -> list[Any]:
    analysis = shown.analysis
    return [
        sentence_card(*against(analysis), stage="input"),
        side_by_side(
            _chart("baseline", baseline_chart(analysis)),
            _chart("decomposition", decomposition_chart(analysis)),
        ),
        words_card(baselines_table(analysis)),
    ]


def _alone(shown: Shown, store: RunStore) -> list[Any]:
    run = shown.analysis.run
    title = "No baseline is chosen"
    if run.synthetic:
        title = "This run is on synthetic data: it is a baseline itself"
    return [
        sentence_card(title, _WHAT),
        None if run.synthetic else howto_card(run.fact("framework")),
        choices_card(shown.run_id, store.candidates(shown.run_id), store.baseline_of(shown.run_id)),
    ]


def _chart(name: str, chart: Chart | None) -> Any:
    return None if chart is None else chart_card(name, chart)

"""A run at a glance: the verdict first, then the pictures, then the numbers."""

from __future__ import annotations

from typing import Any, ClassVar

import dash_mantine_components as dmc
from dash import Dash, Input, Output, State, no_update

from stallscope.analysis import Analysis
from stallscope.pictures.charts import (
    Chart,
    baseline_chart,
    job_chart,
    ledger_chart,
    ranks_chart,
    step_time_chart,
)
from stallscope.reports.tables import baselines_table, stragglers_table
from stallscope.wording.gains import gains

from ..addresses import Address, query_of, with_baseline
from ..components.chart_card import chart_card
from ..components.figures_row import figures_row
from ..components.notices import findings_card, warnings_card
from ..components.run_head import BASELINE_SELECT, run_head
from ..components.tables import gains_table, ledger_table, ranks_table, table_card, words_card
from ..components.verdict_card import verdict_card
from ..layout import ADDRESS
from ..store import RunStore
from .base import Page, View


class OverviewPage(Page):
    path: ClassVar[str] = "/run/<run_id>"

    def view(self, address: Address, store: RunStore) -> View:
        run_id = address.places["run_id"]
        wanted = address.query.get("baseline")
        baseline_id = wanted if wanted is not None and wanted in store else None
        analysis = store.analysis(run_id, baseline_id)
        warnings = list(analysis.warnings)
        if wanted != baseline_id:
            warnings.insert(0, f"there is no run {wanted!r} here to compare with")
        parts = [
            run_head(analysis, run_id, baseline_id, store.runs()),
            _side_by_side(verdict_card(analysis), _gains(analysis)),
            figures_row(analysis),
            _side_by_side(
                _chart("ledger", ledger_chart(analysis)),
                _chart("baseline", baseline_chart(analysis)),
            ),
            _chart("ranks", ranks_chart(analysis)),
            words_card(stragglers_table(analysis)),
            _chart("step-time", step_time_chart(analysis)),
            _side_by_side(_chart("job", job_chart(analysis)), findings_card(analysis.findings)),
            _ledger(analysis),
            words_card(baselines_table(analysis)),
            _ranks(analysis),
            warnings_card(warnings),
        ]
        return View(analysis.run.name, dmc.Stack([part for part in parts if part is not None]))

    def add_callbacks(self, app: Dash, store: RunStore) -> None:
        @app.callback(
            Output(ADDRESS, "search"),
            Input(BASELINE_SELECT, "value"),
            State(ADDRESS, "search"),
            prevent_initial_call=True,
        )
        def choose_baseline(baseline_id: str | None, search: str | None) -> Any:
            return search_with_baseline(baseline_id, search or "")


def search_with_baseline(baseline_id: str | None, search: str) -> Any:
    """The address's new query; no update where it names this baseline already.

    Dash calls this when the select appears, too, not only when somebody chooses.
    """
    if (baseline_id or None) == query_of(search).get("baseline"):
        return no_update
    return with_baseline(search, baseline_id)


def _side_by_side(*parts: Any) -> Any:
    """Parts in columns where the window is wide; those that are None leave their room."""
    there = [part for part in parts if part is not None]
    if not there:
        return None
    return dmc.SimpleGrid(there, cols={"base": 1, "md": len(there)}, spacing="md")


def _chart(name: str, chart: Chart | None) -> Any:
    return None if chart is None else chart_card(name, chart)


def _gains(analysis: Analysis) -> Any:
    if not gains(analysis):
        return None
    return table_card(
        "What fixing gains",
        "The run's own steps, replayed without the fault.",
        gains_table(analysis),
    )


def _ledger(analysis: Analysis) -> Any:
    if not analysis.entries:
        return None
    return table_card(
        "Ledger",
        "What a step's time is spent on; the entries add up to the step.",
        ledger_table(analysis),
    )


def _ranks(analysis: Analysis) -> Any:
    return table_card("Ranks", "Every rank's own means per step.", ranks_table(analysis))

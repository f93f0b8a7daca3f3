"""The list of runs."""

from __future__ import annotations

import logging
from typing import Any, ClassVar

import dash_mantine_components as dmc
from dash import MATCH, Dash, Input, Output

from stallscope.analysis import ENTRIES
from stallscope.errors import StallscopeError
from stallscope.wording.numbers import amount, rate
from stallscope.wording.verdicts import counted, short_verdict

from ..addresses import RUNS, Address
from ..components.runs_table import STEP_TIME, THROUGHPUT, VERDICT, cell_id, runs_table
from ..components.swatch import labelled_swatch
from ..store import RunStore
from .base import Page, View

_log = logging.getLogger(__name__)


class RunsPage(Page):
    path: ClassVar[str] = RUNS

    def view(self, address: Address, store: RunStore) -> View:
        runs = store.runs()
        return View(
            "Runs",
            dmc.Stack(
                [
                    dmc.Box(
                        [
                            dmc.Title("Runs", order=1, size="h2", tabIndex=-1),
                            dmc.Text(
                                f"{counted(len(runs), 'run')}, with what holds each one back most.",
                                c="dimmed",
                            ),
                        ]
                    ),
                    dmc.Card(list_of_runs(store), withBorder=True),
                ]
            ),
        )

    def add_callbacks(self, app: Dash, store: RunStore) -> None:
        # One request per line: what is quick to analyse is there at once.
        @app.callback(
            Output(cell_id(VERDICT, MATCH), "children"),
            Output(cell_id(STEP_TIME, MATCH), "children"),
            Output(cell_id(THROUGHPUT, MATCH), "children"),
            Input(cell_id(VERDICT, MATCH), "id"),
        )
        def fill_in(cell: dict[str, Any]) -> tuple[Any, str, str]:
            return summary_cells(store, str(cell["run"]))


def list_of_runs(store: RunStore) -> Any:
    """The table of all runs of a store."""
    runs = store.runs()
    return runs_table(runs, [store.baseline_of(run.id) for run in runs])


def summary_cells(store: RunStore, run_id: str) -> tuple[Any, str, str]:
    """Verdict, step time and throughput of a run, as the list shows them."""
    try:
        summary = store.summary(run_id)
    except StallscopeError as error:
        return str(error), "", ""
    except Exception:
        _log.exception("the analysis of run %r failed", run_id)
        return "could not be analysed; the terminal says why", "", ""
    kind = summary.bottleneck.kind
    verdict = short_verdict(summary.bottleneck)
    return (
        labelled_swatch(kind, verdict) if kind in ENTRIES else verdict,
        amount(summary.step_ms, "ms"),
        rate(summary.samples_per_second),
    )

"""The head of a run's pages: its name, what it was, and the baseline to hold it against."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dash_mantine_components as dmc
from dash import Dash, Input, Output, State, no_update

from stallscope.analysis import Analysis
from stallscope.run import Run
from stallscope.wording.epochs import ranks_and_hosts, steps_and_epochs

from ..addresses import ADDRESS, query_of, with_baseline
from ..store import RunInfo
from .aria import aria

_BASELINE_SELECT = "baseline"


def run_head(
    analysis: Analysis, run_id: str, baseline_id: str | None, runs: Sequence[RunInfo]
) -> Any:
    """Name, facts, and the choice of a baseline."""
    run = analysis.run
    return dmc.Group(
        [
            dmc.Box(
                [
                    dmc.Group(
                        [dmc.Title(run.name, order=1, size="h2", tabIndex=-1), *_badges(run)],
                        gap="sm",
                    ),
                    dmc.Text(_facts(analysis), c="dimmed", size="sm", mt=4),
                    dmc.Text(run.source, c="dimmed", size="sm", className="source"),
                ],
                flex=1,
                miw=280,
            ),
            _baseline_select(run_id, baseline_id, runs),
        ],
        justify="space-between",
        align="flex-start",
        gap="lg",
    )


def add_run_head_callbacks(app: Dash) -> None:
    """Let the choice of a baseline change the address, and with it the page."""

    @app.callback(
        Output(ADDRESS, "search"),
        Input(_BASELINE_SELECT, "value"),
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


def _badges(run: Run) -> list[Any]:
    badges = []
    if run.synthetic:
        badges.append(dmc.Badge("synthetic data", variant="light", color="gray"))
    if run.status != "completed":
        badges.append(dmc.Badge("no end in the logs", variant="light", color="orange"))
    return badges


def _facts(analysis: Analysis) -> str:
    run = analysis.run
    facts = [
        ranks_and_hosts(analysis),
        steps_and_epochs(analysis),
        str(run.fact("framework") or "framework not recorded"),
    ]
    model = run.fact("model")
    if model:
        facts.append(f"model {model}")
    if run.started_at is not None:
        facts.append(f"began {run.started_at:%Y-%m-%d %H:%M} UTC")
    return " · ".join(facts)


def _baseline_select(run_id: str, baseline_id: str | None, runs: Sequence[RunInfo]) -> Any:
    others = [run for run in runs if run.id != run_id]
    # Mantine leaves it to the mouse.
    clear: Any = {"tabIndex": 0, **aria(label="No baseline", hidden="false")}
    return dmc.Select(
        id=_BASELINE_SELECT,
        label="Baseline",
        placeholder="Compare with…" if others else "No other run is open",
        data=_options(others),
        value=baseline_id,
        clearable=True,
        searchable=True,
        disabled=not others,
        nothingFoundMessage="No such run",
        w={"base": "100%", "xs": 260},
        clearButtonProps=clear,
    )


def _options(runs: Sequence[RunInfo]) -> list[dict[str, Any]]:
    groups = []
    for title, synthetic in (("Synthetic data", True), ("Other runs", False)):
        items = [
            {"value": run.id, "label": _label(run, runs)}
            for run in runs
            if run.synthetic is synthetic
        ]
        if items:
            groups.append({"group": title, "items": items})
    return groups


def _label(run: RunInfo, runs: Sequence[RunInfo]) -> str:
    twins = sum(other.name == run.name for other in runs)
    return f"{run.name} ({run.id})" if twins > 1 else run.name

"""Show stragglers: when they are late, by how much, and at what cost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar
from urllib.parse import urlencode

import dash_mantine_components as dmc
from dash import Dash, html

from stallscope.analysis import Analysis
from stallscope.analysis.stragglers.host_lateness import HostLateness
from stallscope.analysis.stragglers.lap_test import rank_hours
from stallscope.analysis.stragglers.straggler import Straggler
from stallscope.formatting.lists import counted, listed
from stallscope.formatting.numbers import percent
from stallscope.reports.document import NOTHING, Table
from stallscope.text import stragglers
from stallscope.text.cells import Cells
from stallscope.text.stragglers import change, costs, waiting
from stallscope.text.titles import TITLES

from ..addresses import run_address
from ..components.basics import aria, card, link, link_in_text, points, sentence_card
from ..components.chart_card import chart_card
from ..components.rate_inputs import Rate, add_rate_callbacks, rate_inputs, read_rate
from ..components.tables import folded_table, text_table
from ..store import RunStore
from ..store.page_cache import hosts_of, lateness_of
from .run_page import RunPage, RunRequest

_PATTERNS = {
    "persistent": "Persistent",
    "ramp": "Ramp",
    "bursts": "Bursts",
    "rotating": "Rotating",
}
_NOTE = (
    "A rank is named only if it is later than chance explains: together, the tests raise a false "
    "alarm in one of fifty clean runs. "
) + f"{stragglers.NOTE} Without ±, there are too few steps for an interval."
_NAME = "cells"
# The table of more hosts is folded: those that are slow are named above it.
_MOST_OPEN_HOSTS = 12
_WAYS = (("latest", "Latest rank"), ("mean", "Mean of the ranks"))


class StragglersPage(RunPage):
    path: ClassVar[str] = "/run/<run_id>/stragglers"
    tab: ClassVar[str] = "Stragglers"

    def parts(self, request: RunRequest, store: RunStore) -> list[Any]:
        analysis = request.analysis
        return [
            _sentence(analysis),
            _lateness(request),
            _stragglers(request),
            _hosts(analysis),
            _changes(request),
        ]

    def add_callbacks(self, app: Dash, store: RunStore) -> None:
        add_rate_callbacks(app)


def _sentence(analysis: Analysis) -> Any:
    title, text = waiting(analysis)
    colour = "warning" if analysis.stragglers else "neutral"
    return sentence_card(title, text, colour)


def _lateness(request: RunRequest) -> Any:
    of_latest = wants_latest(request.query)
    chart = lateness_of(request.analysis, of_latest=of_latest)
    if chart is None:
        return None
    shared = len(chart.rows) < len(request.analysis.ranks)
    choice = cell_choice(request.run_id, request.query, of_latest) if shared else None
    return chart_card("lateness", chart, choice)


def _stragglers(request: RunRequest) -> Any:
    analysis = request.analysis
    if not analysis.stragglers or analysis.steady is None:
        return None
    rate = read_rate(request.query)
    table = _table(analysis, rate)
    return card(table.title, rate_inputs(request.query), text_table(table), note=_NOTE)


def _table(analysis: Analysis, rate: Rate | None) -> Table:
    columns = [
        "Who",
        "Pattern",
        "Stage",
        "By how much",
        "Share of steps",
        "Costs per step",
        "Rank time in all",
    ]
    return Table(
        "Stragglers",
        (*columns, *([] if rate is None else ["In money"])),
        tuple(_row(one, analysis, rate) for one in analysis.stragglers),
        words=frozenset({0, 1, 2}),
    )


def _row(one: Straggler, analysis: Analysis, rate: Rate | None) -> tuple[str, ...]:
    row = [
        stragglers.who(one),
        f"{_PATTERNS.get(one.pattern, one.pattern)}: {stragglers.pattern(one)}",
        TITLES[one.stage],
        stragglers.excess(one),
        percent(one.late_share),
        stragglers.cost(one),
        costs(one, analysis),
    ]
    if rate is not None:
        hours = rank_hours(one.cost_ms, len(analysis.steady or ()), analysis.run.size)
        money = hours.scaled(rate.per_hour)
        row.append(rate.amount(money.value, money.ci95))
    return tuple(row)


def _hosts(analysis: Analysis) -> Any:
    found = hosts_of(analysis)
    if not found:
        return None
    named = {host for one in analysis.stragglers for host in one.hosts}
    ranks = {rank for one in analysis.stragglers for rank in one.ranks if not one.hosts}
    hosts = tuple(sorted(found, key=lambda one: _who_of(one, named, ranks) == NOTHING))
    cells = Cells.for_all(abs(one.late_ms.value) for one in hosts)
    table = Table(
        "Hosts",
        ("Host", "Named", "Ranks", f"Late, {cells.unit}", "Has the last rank", "By chance"),
        tuple(
            (
                one.host,
                _who_of(one, named, ranks),
                f"{len(one.ranks):,}",
                cells.mean(one.late_ms.value, one.late_ms.ci95),
                percent(one.critical_share),
                percent(one.chance_share),
            )
            for one in hosts
        ),
        words=frozenset({0, 1}),
    )
    note = (
        "How late their ranks are compared with the reference rank, and how often they have the last "
        "rank. By chance, each host has it as often as its share of the ranks."
    )
    every_host = folded_table(
        table, f"All {counted(len(hosts), 'host')}", is_open=len(hosts) <= _MOST_OPEN_HOSTS
    )
    return card(table.title, every_host, note=note)


def _who_of(one: HostLateness, hosts: set[str], ranks: set[int]) -> str:
    """Return the stragglers of a host: the whole host, some of its ranks, or none."""
    own = [rank for rank in one.ranks if rank in ranks]
    if one.host in hosts:
        return "the host"
    return listed("rank", own) if own else NOTHING


def _changes(request: RunRequest) -> Any:
    if request.analysis.steady is None:
        return None
    changes = [
        [
            link_in_text(f"Step {one.step:,}", request.address(f"step/{one.step}")),
            f": {change(one)}.",
        ]
        for one in request.analysis.changes
    ]
    nothing = dmc.Text("The step time does not change for good in this run.", size="sm")
    return card(
        "Step time changes",
        points(changes) if changes else nothing,
        note="Steps where the step time changes for good, by more than chance explains.",
    )


def wants_latest(query: Mapping[str, str]) -> bool:
    """Whether cells show their latest rank, as they do unless the address asks for the mean."""
    return query.get(_NAME) != "mean"


def cell_choice(run_id: str, query: Mapping[str, str], latest: bool) -> Any:
    """Link to the same page with its cells coloured either way."""
    links = [
        link(
            words,
            f"{run_address(run_id, page='stragglers')}?{urlencode({**query, _NAME: way})}",
            underline="never",
            className="cell-choice",
            **(aria(current="true") if (way == "latest") is latest else {}),
        )
        for way, words in _WAYS
    ]
    return html.Div(
        ["Cells show: ", *links], className="cell-choices", role="group", **aria(label="Cells show")
    )

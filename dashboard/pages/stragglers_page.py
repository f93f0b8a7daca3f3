"""Show stragglers: when they are late, by how much, and at what cost."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar
from urllib.parse import urlencode

import dash_mantine_components as dmc
from dash import Dash, Input, Output, State, html, no_update

from stallscope.analysis import Analysis
from stallscope.analysis.stragglers.lap_test import rank_hours
from stallscope.analysis.stragglers.lateness import Straggler
from stallscope.analysis.views.rank_maps import GroupLateness
from stallscope.formatting.lists import capitalised, counted, listed
from stallscope.formatting.numbers import Cells, Interval, percent, plus_minus
from stallscope.formatting.plain import plain
from stallscope.reports.document import NOTHING, Table
from stallscope.text import straggler_words
from stallscope.text.straggler_words import change, costs, waiting
from stallscope.text.vocabulary import TITLES
from stallscope.words import Pattern

from ..addresses import ADDRESS, query_of, run_address
from ..components.basics import aria, card, link, link_in_text, points, sentence_card
from ..components.chart_card import chart_card
from ..components.data_tables import folded_table, text_table
from ..store import RunStore
from ..store.cache import groups_of, lateness_of
from .run_page import RunPage, RunRequest

_PATTERNS: dict[Pattern, str] = {
    "persistent": "Persistent",
    "ramp": "Ramp",
    "bursts": "Bursts",
    "rotating": "Rotating",
}
_NOTE = (
    "A rank is named only if it is later than chance explains: together, the tests raise a false "
    "alarm in one of fifty clean runs. "
) + f"{straggler_words.NOTE} Without ±, there are too few steps for an interval."
_NAME = "cells"
# The table of more hosts or places is folded: those that are slow are named above it.
_MOST_OPEN_GROUPS = 12
_WAYS = (("latest", "Latest rank"), ("mean", "Mean of the ranks"))

_RATE, _CURRENCY = "rate", "currency"
_LONGEST_CURRENCY = 8
_HIGHEST_RATE = 1e9


class StragglersPage(RunPage):
    path: ClassVar[str] = "/run/<run_id>/stragglers"
    tab: ClassVar[str] = "Stragglers"

    def parts(self, request: RunRequest, store: RunStore) -> list[Any]:
        analysis = request.analysis
        return [
            _sentence(analysis),
            _lateness(request),
            _stragglers(request),
            *_groups(analysis),
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
        tuple(_row(straggler, analysis, rate) for straggler in analysis.stragglers),
        words=frozenset({0, 1, 2}),
    )


def _row(straggler: Straggler, analysis: Analysis, rate: Rate | None) -> tuple[str, ...]:
    row = [
        straggler_words.who(straggler),
        f"{_PATTERNS[straggler.pattern]}: {straggler_words.pattern(straggler)}",
        TITLES[straggler.stage],
        straggler_words.excess(straggler),
        percent(straggler.late_share),
        straggler_words.cost(straggler),
        costs(straggler, analysis),
    ]
    if rate is not None:
        hours = rank_hours(straggler.cost_ms, len(analysis.steady or ()), analysis.run.size)
        money = hours.scaled(rate.per_hour)
        row.append(rate.amount(money.value, money.ci95))
    return tuple(row)


def _groups(analysis: Analysis) -> list[Any]:
    """Return the hosts, and the places in each dimension of the mesh, as tables."""
    groups = groups_of(analysis)
    return [_group_table(analysis, dimension, unordered) for dimension, unordered in groups.items()]


def _group_table(analysis: Analysis, dimension: str, unordered: tuple[GroupLateness, ...]) -> Any:
    of_hosts = dimension == "host"
    groups = [straggler.hosts or (straggler.place,) for straggler in analysis.stragglers]
    named = {name for names in groups for name in names}
    ranks = {
        rank
        for straggler in analysis.stragglers
        for rank in straggler.ranks
        if not straggler.hosts and straggler.place is None
    }
    group_word = "host" if of_hosts else "place"
    rows = tuple(
        sorted(unordered, key=lambda group: _who_of(group, group_word, named, ranks) == NOTHING)
    )
    cells = Cells.for_all(abs(group.late_ms.value) for group in rows)
    table = Table(
        "Hosts" if of_hosts else f"Places in {plain(dimension)}",
        (
            capitalised(group_word),
            "Named",
            "Ranks",
            f"Late, {cells.unit}",
            "Has the last rank",
            "By chance",
        ),
        tuple(
            (
                group.name,
                _who_of(group, group_word, named, ranks),
                f"{len(group.ranks):,}",
                cells.mean(group.late_ms.value, group.late_ms.ci95),
                percent(group.critical_share),
                percent(group.chance_share),
            )
            for group in rows
        ),
        words=frozenset({0, 1}),
    )
    note = (
        "How late their ranks are compared with the reference rank, and how often they have the last "
        f"rank. By chance, each {group_word} has it as often as its share of the ranks."
    )
    every_group = folded_table(
        table, f"All {counted(len(rows), group_word)}", is_open=len(rows) <= _MOST_OPEN_GROUPS
    )
    return card(table.title, every_group, note=note)


def _who_of(group: GroupLateness, group_word: str, named: set[str | None], ranks: set[int]) -> str:
    """Return the stragglers of a group: the whole host or place, some of its ranks, or none."""
    late_ranks = [rank for rank in group.ranks if rank in ranks]
    if group.name in named:
        return f"the {group_word}"
    return listed("rank", late_ranks) if late_ranks else NOTHING


def _changes(request: RunRequest) -> Any:
    if request.analysis.steady is None:
        return None
    changes = [
        [
            link_in_text(
                f"Step {level_change.step:,}", request.address(f"step/{level_change.step}")
            ),
            f": {change(level_change)}.",
        ]
        for level_change in request.analysis.changes
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
            f"{run_address(run_id, page='straggler_words')}?{urlencode({**query, _NAME: way})}",
            underline="never",
            className="cell-choice",
            **(aria(current="true") if (way == "latest") is latest else {}),
        )
        for way, words in _WAYS
    ]
    return html.Div(
        ["Cells show: ", *links], className="cell-choices", role="group", **aria(label="Cells show")
    )


# -- The cost of a rank-hour: the user types it, the address keeps it -----------------------------


@dataclass(frozen=True)
class Rate:
    """Money per rank-hour; the currency may be empty."""

    per_hour: float
    currency: str

    def amount(self, value: float, ci95: Interval | None = None) -> str:
        """Write 12.30 ± 0.04 EUR; a symbol comes first: $12.30 ± 0.04."""
        number = plus_minus(value, ci95)
        if len(self.currency) == 1 and not self.currency.isalpha():
            return f"{self.currency}{number}"
        return f"{number} {self.currency}".rstrip()


def read_rate(query: Mapping[str, str]) -> Rate | None:
    """Read the rate from an address; None without a valid one."""
    number = _number(query.get(_RATE))
    return None if number is None else Rate(number, _currency(query.get(_CURRENCY)))


def rate_inputs(query: Mapping[str, str]) -> Any:
    """Make inputs for the rate and its currency, as the address has them."""
    rate = read_rate(query)
    wrong = rate is None and bool(query.get(_RATE))
    return dmc.Group(
        [
            dmc.NumberInput(
                id=_RATE,
                label="Price of a rank-hour",
                description="adds what waiting costs in money",
                value="" if rate is None else rate.per_hour,
                min=0,
                max=_HIGHEST_RATE,
                allowNegative=False,
                hideControls=True,
                debounce=True,
                error="Enter a number above 0." if wrong else None,
                # Mantine's red text is too pale, and the message describes the error.
                withErrorStyles=False,
                w=220,
            ),
            dmc.TextInput(
                id=_CURRENCY,
                label="Currency",
                description="if you like",
                value=_currency(query.get(_CURRENCY)),
                placeholder="EUR, $ …",
                debounce=True,
                w=120,
            ),
        ],
        gap="md",
        align="flex-start",
        mb="sm",
    )


def add_rate_callbacks(app: Dash) -> None:
    """Let the inputs change the address, and with it the page."""

    @app.callback(
        Output(ADDRESS, "search", allow_duplicate=True),
        Input(_RATE, "value"),
        Input(_CURRENCY, "value"),
        State(ADDRESS, "search"),
        prevent_initial_call=True,
    )
    def choose_rate(rate: object, currency: object, search: str | None) -> Any:
        return search_with_rate(rate, currency, search or "")


def search_with_rate(rate: object, currency: object, search: str) -> Any:
    """Make the address' new query; no update if it is the same already.

    Dash calls this when the inputs appear, too, not only when a user types.
    """
    query = query_of(search)
    number, name = _number(rate), _currency(currency)
    if (number, name) == (_number(query.get(_RATE)), _currency(query.get(_CURRENCY))):
        return no_update
    for key, value in ((_RATE, "" if number is None else f"{number:.15g}"), (_CURRENCY, name)):
        query.pop(key, None)
        if value:
            query[key] = value
    return f"?{urlencode(query)}" if query else ""


def _number(value: object) -> float | None:
    """Read a valid rate; None for anything else."""
    try:
        number = float(str(value))
    except ValueError:
        return None
    return number if math.isfinite(number) and 0 < number <= _HIGHEST_RATE else None


def _currency(value: object) -> str:
    return plain(str(value or ""))[:_LONGEST_CURRENCY].strip()

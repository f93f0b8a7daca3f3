"""Compare two runs side by side, or the runs of a job over time: first charts, then tables."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from typing import Any, ClassVar

import dash_mantine_components as dmc
from dash import html

from stallscope.analysis import Analysis
from stallscope.analysis.comparison import compare
from stallscope.analysis.regression import History, regression
from stallscope.charts.charts import (
    changes_chart,
    different_jobs_chart,
    figure_charts,
    ledgers_chart,
    runs_chart,
)
from stallscope.formatting.lists import counted
from stallscope.formatting.numbers import NOT_MEASURED
from stallscope.formatting.plain import plain
from stallscope.reports.comparison import histories
from stallscope.reports.comparison.pair import (
    caveats,
    changes_table,
    facts_table,
    nothing_else,
    outcome,
    table_of_runs,
)
from stallscope.text.job_words import number_of_ranks, steps_and_epochs, throughput

from ..addresses import COMPARE, Address, compare_address, run_address, runs_address
from ..components.basics import card, link, link_in_text, outcome_card, points, verdict_swatch
from ..components.chart_card import chart_card
from ..components.data_tables import text_table_card
from ..components.notices import notice, warnings_card
from ..store import RunStore
from .run_page import Page, View, side_by_side


class ComparePage(Page):
    path: ClassVar[str] = COMPARE

    def view(self, address: Address, store: RunStore) -> View:
        named = address.query.get("runs", "").split(",")
        ids = [run_id for run_id in dict.fromkeys(named) if run_id]
        if len(ids) < 2:
            return View("Compare", _help())
        return _pair(ids[0], ids[1], store) if len(ids) == 2 else _over_time(ids, store)


def _pair(first: str, second: str, store: RunStore) -> View:
    comparison = compare(store.analysis(first), store.analysis(second))
    title, sentence = outcome(comparison)
    parts = [
        _head(first, second),
        side_by_side(
            _run("A", first, comparison.first, store), _run("B", second, comparison.second, store)
        ),
        outcome_card(title, [sentence, *caveats(comparison)]),
        side_by_side(
            chart_card("ledgers", ledgers_chart(comparison)),
            chart_card("changes", changes_chart(comparison)),
        ),
        side_by_side(
            text_table_card(changes_table(comparison)), text_table_card(facts_table(comparison))
        ),
        None if comparison.differences else dmc.Text(nothing_else(comparison), size="sm"),
    ]
    names = f"{comparison.first.run.name} and {comparison.second.run.name}"
    return View.of(names, parts)


def _over_time(ids: Sequence[str], store: RunStore) -> View:
    # The store's id of a run may differ from the run's own.
    addresses: dict[str, str] = {}
    not_compared: list[Any] = []

    def analyses() -> Iterator[Analysis]:
        for run_id in ids:
            analysis = store.analysis(run_id)
            address = run_address(run_id, store.baseline_of(run_id))
            why = _why_not_compared(analysis, addresses)
            if why:
                name = link_in_text(plain(analysis.run.name), address)
                not_compared.append([name, f" {why}"])
            addresses.setdefault(analysis.run.id, address)
            yield analysis

    histories = regression(analyses())
    title = f"Compare {counted(len(ids), 'run')}"
    if not histories:
        text = "None of these runs has steps that could be timed: there is nothing to compare."
        return View(title, notice(title, text))
    notice_of_missing = _missing_card(not_compared, len(ids))
    if all(len(history.runs) == 1 for history in histories):
        different = [run.analysis for history in histories for run in history.runs]
        links = [addresses[analysis.run.id] for analysis in different]
        return View.of(title, _different_jobs(title, different, links, notice_of_missing))
    parts = [
        part
        for index, history in enumerate(histories)
        for part in _history_cards(
            history, index, [addresses[run.analysis.run.id] for run in history.runs]
        )
    ]
    heading = dmc.Title(title, order=1, size="h2", tabIndex=-1)
    return View.of(f"{histories[0].name}: {title.lower()}", [heading, notice_of_missing, *parts])


def _why_not_compared(analysis: Analysis, compared: Container[str]) -> str:
    """Say why a run is not shown among the others; empty if it is."""
    if analysis.step is None:
        return "has no measured steps: its own page shows what its logs have."
    if analysis.run.id in compared:
        return "is a copy of another of these runs: compare the two alone to see both."
    return ""


def _missing_card(not_compared: Sequence[Any], chosen: int) -> Any:
    """Name the chosen runs that are not shown, each with its page; None if all are."""
    if not not_compared:
        return None
    shown = chosen - len(not_compared)
    return card(f"{shown} of {chosen} runs are shown", points(not_compared))


def _history_cards(history: History, index: int, addresses: Sequence[str]) -> list[Any]:
    """List the cards of one job, from the top down; a single run has no figures over the runs.

    Args:
        history: the job's runs.
        index: which of the page's jobs it is, from 0.
        addresses: where each of the runs is shown.
    """
    return [
        outcome_card(
            plain(histories.headline(history)),
            map(plain, histories.since(history)),
            label=plain(histories.title(history)),
        ),
        *(_over_runs(history, index) if len(history.runs) > 1 else []),
        chart_card(f"ledgers-{index}", runs_chart(history)),
        text_table_card(histories.runs_table(history), addresses),
        warnings_card([plain(warning) for warning in history.warnings]),
    ]


def _over_runs(history: History, index: int) -> list[Any]:
    """Chart and tabulate the figures of a job's runs over time."""
    return [
        *(
            chart_card(f"over-runs-{index}-{name}", chart)
            for name, chart in figure_charts(history).items()
        ),
        text_table_card(histories.figures_table(history)),
        text_table_card(histories.changes_table(history)),
    ]


def _different_jobs(
    title: str, analyses: Sequence[Analysis], addresses: Sequence[str], notice_of_missing: Any
) -> list[Any]:
    """Show runs of different jobs, after the notice of those that are missing."""
    text = (
        "These runs are all of different jobs or numbers of ranks, so they show no change over time. "
        "Select two runs to see what differs between them, or several runs of one job."
    )
    numbers = [str(number) for number in range(1, len(analyses) + 1)]
    return [
        dmc.Title(title, order=1, size="h2", tabIndex=-1),
        notice_of_missing,
        outcome_card("Different jobs", [text]),
        chart_card("ledgers", different_jobs_chart(analyses)),
        text_table_card(table_of_runs(numbers, analyses), addresses),
    ]


def _head(first: str, second: str) -> Any:
    return dmc.Group(
        [
            dmc.Title("Compare two runs", order=1, size="h2", tabIndex=-1),
            link("Swap A and B", compare_address(second, first), size="sm"),
        ],
        align="baseline",
        gap="lg",
    )


def _help() -> Any:
    return dmc.Stack(
        [
            notice(
                "Compare runs",
                "Select runs in the list, with the mouse or the space bar, and choose Compare. Two runs "
                "are shown side by side; three or more show since which run a job is slower.",
            ),
            link("To the list of runs", runs_address()),
        ]
    )


def _unbroken(facts: Sequence[str]) -> list[Any]:
    """Join facts so that lines end between them only, not within a date."""
    spans = [html.Span(fact, style={"whiteSpace": "nowrap"}) for fact in facts]
    return [part for span in spans for part in (" · ", span)][1:]


def _run(letter: str, run_id: str, analysis: Analysis, store: RunStore) -> Any:
    run, bottleneck = analysis.run, store.verdict(run_id)
    facts = [number_of_ranks(run), steps_and_epochs(analysis)]
    if run.synthetic:
        facts.append("synthetic data")
    if run.started_at is not None:
        facts.append(f"started {run.started_at:%Y-%m-%d %H:%M} UTC")
    return dmc.Card(
        dmc.Group(
            [
                dmc.ThemeIcon(letter, variant="default", size="lg", radius="xl"),
                dmc.Box(
                    [
                        link(
                            plain(run.name), run_address(run_id, store.baseline_of(run_id)), fw=600
                        ),
                        dmc.Text(_unbroken(facts), size="sm", c="dimmed"),
                        dmc.Group(
                            [
                                verdict_swatch(bottleneck),
                                html.Span(throughput(analysis) or NOT_MEASURED),
                            ],
                            gap="md",
                            mt=4,
                        ),
                    ],
                    className="compared",
                    flex=1,
                ),
            ],
            align="flex-start",
            wrap="nowrap",
        ),
        withBorder=True,
        h="100%",
    )

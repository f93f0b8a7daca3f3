"""Compare two runs side by side, or the runs of a job over time: first charts, then tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import dash_mantine_components as dmc
from dash import html

from stallscope.analysis import ENTRIES, Analysis
from stallscope.analysis.history.comparison import Comparison, Difference, compare
from stallscope.analysis.history.regression import regression
from stallscope.charts.comparison import changes_chart, ledgers_chart
from stallscope.formatting.lists import counted
from stallscope.formatting.numbers import rate
from stallscope.formatting.plain import plain
from stallscope.reports.comparison.pair import (
    NOTHING_ELSE,
    caveats,
    changes_table,
    facts_table,
    outcome,
)
from stallscope.reports.document import Table
from stallscope.text.verdicts import short_verdict

from ..addresses import COMPARE, Address, compare_address, run_address, runs_address
from ..components.history_cards import history_cards
from ..components.notices import notice
from ..components.swatch import labelled_swatch
from ..components.tables import words_card
from ..store import RunStore
from .base import Page, View
from .run_page import optional_chart, side_by_side


class ComparePage(Page):
    path: ClassVar[str] = COMPARE

    def view(self, address: Address, store: RunStore) -> View:
        named = address.query.get("runs", "").split(",")
        ids = [run_id for run_id in dict.fromkeys(named) if run_id]
        if len(ids) < 2:
            return View("Compare", _help())
        return _pair(ids[0], ids[1], store) if len(ids) == 2 else _over_time(ids, store)


def _pair(first: str, second: str, store: RunStore) -> View:
    found = compare(store.analysis(first), store.analysis(second))
    parts = [
        _head(first, second),
        side_by_side(_run("A", first, found.first, store), _run("B", second, found.second, store)),
        _outcome(found),
        side_by_side(
            optional_chart("ledgers", ledgers_chart(found)),
            optional_chart("changes", changes_chart(found)),
        ),
        side_by_side(_table(changes_table(found)), _table(facts_table(found))),
        _nothing_else(found.differences),
    ]
    names = f"{found.first.run.name} and {found.second.run.name}"
    return View(names, dmc.Stack([part for part in parts if part is not None]))


def _over_time(ids: Sequence[str], store: RunStore) -> View:
    # The store's id of a run may differ from the run's own.
    addresses: dict[str, str] = {}

    def analyses() -> Iterator[Analysis]:
        for run_id in ids:
            analysis = store.analysis(run_id)
            addresses[analysis.run.id] = run_address(run_id, store.baseline_of(run_id))
            yield analysis

    found = regression(analyses())
    title = f"Compare {counted(len(ids), 'run')}"
    if not found:
        text = "None of these runs has steps that could be timed: there is nothing to compare."
        return View(title, notice(title, text))
    parts = [
        part
        for index, one in enumerate(found)
        for part in history_cards(one, index, [addresses[run.analysis.run.id] for run in one.runs])
    ]
    heading = dmc.Title(title, order=1, size="h2", tabIndex=-1)
    return View(f"{found[0].name}: {title.lower()}", dmc.Stack([heading, *parts]))


def _head(first: str, second: str) -> Any:
    return dmc.Group(
        [
            dmc.Title("Compare two runs", order=1, size="h2", tabIndex=-1),
            dmc.Anchor(
                "Swap A and B", href=compare_address(second, first), refresh=False, size="sm"
            ),
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
            dmc.Anchor("To the list of runs", href=runs_address(), refresh=False),
        ]
    )


def _run(letter: str, run_id: str, analysis: Analysis, store: RunStore) -> Any:
    run, bottleneck = analysis.run, store.verdict(run_id)
    verdict = short_verdict(bottleneck)
    facts = [counted(run.size, "rank"), counted(analysis.steps, "step")]
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
                        dmc.Anchor(
                            plain(run.name),
                            href=run_address(run_id, store.baseline_of(run_id)),
                            refresh=False,
                            fw=600,
                        ),
                        dmc.Text(" · ".join(facts), size="sm", c="dimmed"),
                        dmc.Group(
                            [
                                labelled_swatch(bottleneck.kind, verdict)
                                if bottleneck.kind in ENTRIES
                                else html.Span(verdict),
                                html.Span(rate(analysis.samples_per_second)),
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


def _outcome(found: Comparison) -> Any:
    title, sentence = outcome(found)
    notes = [dmc.Text(text, mt=4, size="sm") for text in caveats(found)]
    return dmc.Card(
        [dmc.Title(title, order=2, size="h3"), dmc.Text(sentence, mt=4), *notes], withBorder=True
    )


def _table(table: Table | None) -> Any:
    return None if table is None else words_card(table)


def _nothing_else(differences: tuple[Difference, ...]) -> Any:
    if differences:
        return None
    return dmc.Text(NOTHING_ELSE, size="sm")

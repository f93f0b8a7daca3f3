"""Two runs side by side: what changed from one to the other, pictures first."""

from __future__ import annotations

from typing import Any, ClassVar
from urllib.parse import quote

import dash_mantine_components as dmc
from dash import html

from stallscope.analysis import ENTRIES, Analysis
from stallscope.analysis.comparison import Comparison, Difference, compare
from stallscope.pictures.charts import Chart
from stallscope.pictures.comparison import changes_chart, ledgers_chart
from stallscope.reports.comparison.contents import NOTHING_ELSE, changes_table, facts_table
from stallscope.reports.comparison.sentences import caveats, outcome
from stallscope.reports.tables import Table
from stallscope.wording.numbers import rate
from stallscope.wording.plain import plain
from stallscope.wording.verdicts import counted, short_verdict

from ..addresses import Address, root, run_address, runs_address
from ..components.chart_card import chart_card
from ..components.notices import notice
from ..components.swatch import labelled_swatch
from ..components.tables import words_card
from ..store import RunStore
from .base import Page, View
from .run_page import side_by_side

_PATH = "/compare"


def compare_address(first: str, second: str) -> str:
    """The address of two runs side by side."""
    return f"{root()}{_PATH}?runs={quote(first, safe='')},{quote(second, safe='')}"


class ComparePage(Page):
    path: ClassVar[str] = _PATH

    def view(self, address: Address, store: RunStore) -> View:
        ids = [one for one in address.query.get("runs", "").split(",") if one]
        if len(ids) != 2 or ids[0] == ids[1]:
            return View("Compare", _how())
        first, second = ids
        found = compare(store.analysis(first), store.analysis(second))
        parts = [
            _head(first, second),
            side_by_side(
                _run("A", first, found.first, store), _run("B", second, found.second, store)
            ),
            _outcome(found),
            side_by_side(
                _chart("ledgers", ledgers_chart(found)), _chart("changes", changes_chart(found))
            ),
            side_by_side(_table(changes_table(found)), _table(facts_table(found))),
            _nothing_else(found.differences),
        ]
        names = f"{found.first.run.name} and {found.second.run.name}"
        return View(names, dmc.Stack([part for part in parts if part is not None]))


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


def _how() -> Any:
    return dmc.Stack(
        [
            notice(
                "Compare two runs",
                "Select two runs in the list, with the mouse or with the space bar, and choose Compare.",
            ),
            dmc.Anchor("To the list of runs", href=runs_address(), refresh=False),
        ]
    )


def _run(letter: str, run_id: str, analysis: Analysis, store: RunStore) -> Any:
    run, bottleneck = analysis.run, store.summary(run_id).bottleneck
    verdict = short_verdict(bottleneck)
    facts = [counted(run.size, "rank"), counted(analysis.steps, "step")]
    if run.synthetic:
        facts.append("synthetic data")
    if run.started_at is not None:
        facts.append(f"began {run.started_at:%Y-%m-%d %H:%M} UTC")
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
    words, sentence = outcome(found)
    said = [dmc.Text(text, mt=4, size="sm") for text in caveats(found)]
    return dmc.Card(
        [dmc.Title(words, order=2, size="h3"), dmc.Text(sentence, mt=4), *said], withBorder=True
    )


def _chart(name: str, chart: Chart | None) -> Any:
    return None if chart is None else chart_card(name, chart)


def _table(table: Table | None) -> Any:
    return None if table is None else words_card(table)


def _nothing_else(differences: tuple[Difference, ...]) -> Any:
    if differences:
        return None
    return dmc.Text(NOTHING_ELSE, size="sm")

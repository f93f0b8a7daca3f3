"""Give an overview of a run: first the verdict, then charts, then tables."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

import dash_mantine_components as dmc

from stallscope.analysis import ENTRIES, Analysis
from stallscope.analysis.ledger.ledger import CAUSES
from stallscope.charts.by_cause import cause_chart
from stallscope.charts.charts import baseline_chart, job_chart, ranks_chart
from stallscope.charts.gains import gains_chart
from stallscope.charts.kinds import drawn_as
from stallscope.charts.rank_windows import printed_ranks_chart
from stallscope.charts.step_time import step_time_chart
from stallscope.formatting.numbers import NOT_MEASURED, amount, exact, interval, rate, share
from stallscope.reports.run.step_tables import baselines_table, cause_table, ledger_table
from stallscope.reports.run.tables import (
    gains_table,
    generations_table,
    printed_ranks_table,
    printed_steps_table,
    ranks_table,
    stragglers_table,
)
from stallscope.text.gains import how_sure, main_gain, saved, speedup
from stallscope.text.titles import entry_name
from stallscope.text.verdicts import headline, status
from stallscope.text.why import TITLE, why

from ..components.basics import advice_steps, coded_words, points, sentence_card
from ..components.chart_card import chart_card
from ..components.notices import findings_card, warnings_card
from ..components.tables import data_card, text_table_card
from ..store import RunStore
from ..store.page_cache import cached
from .run_page import RunPage, RunRequest, side_by_side


class OverviewPage(RunPage):
    path: ClassVar[str] = "/run/<run_id>"
    tab: ClassVar[str] = "Overview"

    def parts(self, request: RunRequest, store: RunStore) -> list[Any]:
        # Some thousand components, the same at each visit; links begin with the path of the app.
        name = f"overview at {request.address('')}"
        return cached(request.analysis, name, lambda: self._parts(request))

    def _parts(self, request: RunRequest) -> list[Any]:
        analysis = request.analysis
        return [
            side_by_side(verdict_card(analysis), chart_card("gains", gains_chart(analysis))),
            figures_row(analysis),
            side_by_side(
                chart_card("by-cause", cause_chart(analysis)),
                chart_card("baseline", baseline_chart(analysis)),
            ),
            text_table_card(generations_table(analysis)),
            chart_card("ranks", ranks_chart(analysis)),
            text_table_card(stragglers_table(analysis)),
            chart_card("step-time", step_time_chart(analysis)),
            chart_card("printed-ranks", printed_ranks_chart(analysis)),
            side_by_side(
                text_table_card(printed_steps_table(analysis)),
                text_table_card(printed_ranks_table(analysis)),
            ),
            side_by_side(
                chart_card("job", job_chart(analysis)),
                _findings(analysis, request),
            ),
            *_ledgers(analysis),
            side_by_side(
                text_table_card(gains_table(analysis)), text_table_card(baselines_table(analysis))
            ),
            _ranks(analysis),
            warnings_card(analysis.warnings),
        ]

    def title(self, analysis: Analysis) -> str:
        return analysis.run.name


def _ledgers(analysis: Analysis) -> list[Any]:
    """Return the tables of the step by cause and of the typical rank; nothing without stages."""
    if not analysis.by_cause:
        return []
    return [
        text_table_card(table, stages=[drawn_as(entry_name(name, analysis)) for name in names])
        for table, names in ((cause_table(analysis), CAUSES), (ledger_table(analysis), ENTRIES))
    ]


def _findings(analysis: Analysis, request: RunRequest) -> Any:
    """List findings; the other pages show recorded steps only."""
    linked = None if analysis.printed is not None else request.run_id
    return findings_card(analysis.findings, linked, request.baseline_id)


def _ranks(analysis: Analysis) -> Any:
    """Return the table of all ranks, stragglers first; nothing where steps were not recorded."""
    if not analysis.ranks:
        return None
    named = set(analysis.bottleneck.ranks)
    ordered = sorted(analysis.ranks, key=lambda rank: (rank.rank not in named, rank.rank))
    table = ranks_table(analysis, ranks=ordered)
    rows = [
        (f"{rank} (slow)" if index in table.emphasised else rank, *cells)
        for index, (rank, *cells) in enumerate(table.rows)
    ]
    note = "The means per step of each rank."
    return data_card(table.title, note, table.columns, rows, text_columns=2)


def verdict_card(analysis: Analysis) -> Any:
    """Make the verdict's card, the first on the page."""
    bottleneck = analysis.bottleneck
    return sentence_card(
        headline(bottleneck, analysis.stragglers),
        bottleneck.evidence,
        status(bottleneck),
        _listed(TITLE, map(coded_words, why(analysis))),
        _gain(analysis),
        _listed("What to do", map(advice_steps, bottleneck.advice)),
        label="Verdict",
        h="100%",
    )


def _gain(analysis: Analysis) -> Any:
    gain = main_gain(analysis)
    if gain is None:
        return None
    what_if = gain.what_if
    return dmc.Group(
        [
            dmc.Text(speedup(what_if), className="gain", span=True),
            dmc.Text(
                f"as fast: saves {saved(what_if)} per step ({how_sure(what_if)}).",
                size="sm",
                flex=1,
                miw=200,
            ),
        ],
        gap="md",
        mt="md",
        align="center",
    )


def _listed(title: str, found: Iterable[Any]) -> Any:
    items = list(found)
    if not items:
        return None
    return dmc.Box(
        [
            dmc.Title(title, order=3, size="h6", mt="md", mb=4),
            points(items),
        ],
        className="advice",
    )


def figures_row(analysis: Analysis) -> Any:
    """Show step time, its tail, throughput, and the loss against the baseline."""
    step = analysis.step
    figures: list[tuple[str, str, str | None]] = [
        (
            "Step time",
            NOT_MEASURED if step is None else exact(step.mean, "ms", step.ci95),
            None if step is None else f"95% interval: {interval(step.ci95, 'ms')}",
        ),
        (
            "Slow steps",
            amount(None if step is None else step.p95, "ms"),
            "one step in twenty is slower",
        ),
        ("Throughput", rate(analysis.samples_per_second), "of all ranks together"),
    ]
    if analysis.baseline is not None:
        figures.append(_against_baseline(analysis.gap))
    return dmc.SimpleGrid(
        [_figure(*figure) for figure in figures],
        cols={"base": 2, "sm": len(figures)},
        spacing="md",
    )


def _against_baseline(gap: float | None) -> tuple[str, str, str]:
    if gap is not None and gap < 0:
        return "Gained on the baseline", share(-gap), "of its throughput"
    return "Lost against the baseline", share(gap), "of its throughput"


def _figure(label: str, value: str, note: str | None) -> Any:
    measured = value != NOT_MEASURED
    return dmc.Card(
        [
            dmc.Text(label, size="sm", c="dimmed"),
            dmc.Text(value, className="figure" if measured else "figure missing"),
            dmc.Text(note, size="xs", c="dimmed") if note and measured else None,
        ],
        withBorder=True,
        padding="sm",
    )

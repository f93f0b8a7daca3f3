"""Give an overview of a run: first the verdict, then charts, with their tables folded below."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, ClassVar

import dash_mantine_components as dmc

from stallscope.analysis import ENTRIES, Analysis
from stallscope.analysis.ledger.ledger_figures import StepTime
from stallscope.analysis.ledger.printed_steps import PrintedSteps
from stallscope.charts.chart_kinds import drawn_as
from stallscope.charts.charts import job_chart, ranks_chart
from stallscope.charts.compared_bars import cause_chart, paces_chart
from stallscope.charts.rows import gains_chart
from stallscope.charts.step_time import printed_ranks_chart, step_time_chart
from stallscope.formatting.lists import capitalised, counted
from stallscope.formatting.numbers import (
    NOT_MEASURED,
    amount,
    exact,
    interval,
    percent,
    plus_minus,
    rate,
    share,
)
from stallscope.reports.document import Table
from stallscope.reports.run.network_tables import probe_table
from stallscope.reports.run.run_tables import (
    epochs_table,
    gains_table,
    generations_table,
    printed_ranks_table,
    printed_steps_table,
    ranks_table,
    stragglers_table,
)
from stallscope.reports.run.step_tables import cause_table, causes_table, ledger_table
from stallscope.text.figure_words import PAUSES, median_step
from stallscope.text.gain_words import as_fast, how_sure, loss_gain, main_gain
from stallscope.text.job_words import epoch_figures
from stallscope.text.machine_words import TITLE, why
from stallscope.text.verdicts import headline, status
from stallscope.text.vocabulary import entry_name
from stallscope.words import CAUSES

from ..components.basics import advice_steps, coded_words, points, sentence_card
from ..components.chart_card import chart_card, picture
from ..components.data_tables import AS_A_TABLE, folded_table, table_card
from ..components.notices import findings_card, warnings_card
from ..store import RunStore
from ..store.cache import cached
from .run_page import RunPage, RunRequest, side_by_side

# Of more ranks, the chart shows the latest; a table below it has all.
_MOST_RANKS = 8


class OverviewPage(RunPage):
    path: ClassVar[str] = "/run/<run_id>"
    tab: ClassVar[str] = "Overview"

    def parts(self, request: RunRequest, store: RunStore) -> list[Any]:
        # Some thousand components, the same at each visit; links begin with the path of the app.
        name = f"overview at {request.address('')}"
        return cached(request.analysis, name, lambda: self._parts(request))

    def _parts(self, request: RunRequest) -> list[Any]:
        analysis = request.analysis
        epochs = epochs_table(analysis)
        return [
            side_by_side(
                verdict_card(analysis),
                picture(
                    "gains", gains_chart(analysis), folded_table(gains_table(analysis), AS_A_TABLE)
                ),
            ),
            figures_row(analysis),
            None if epochs is None else table_card(epochs),
            picture("input-probe", paces_chart(analysis), folded_table(probe_table(analysis))),
            _findings(analysis, request),
            side_by_side(_step(analysis), chart_card("job", job_chart(analysis))),
            picture(
                "ranks",
                ranks_chart(analysis, most=_MOST_RANKS),
                folded_table(stragglers_table(analysis)),
                folded_table(causes_table(analysis)),
                folded_table(_ranks(analysis), f"All {counted(len(analysis.ranks), 'rank')}"),
            ),
            picture(
                "step-time",
                step_time_chart(analysis),
                folded_table(generations_table(analysis)),
                folded_table(printed_steps_table(analysis)),
            ),
            picture(
                "printed-ranks",
                printed_ranks_chart(analysis),
                folded_table(printed_ranks_table(analysis)),
            ),
            warnings_card(analysis.warnings),
        ]

    def title(self, analysis: Analysis) -> str:
        return analysis.run.name


def _step(analysis: Analysis) -> Any:
    """Show the step by cause, with its tables. None without stages."""
    chart = cause_chart(analysis)
    if chart is None:
        return None
    if not analysis.by_cause:
        # By printed timers, which have no interval and no waiting.
        return chart_card("by-cause", chart)
    tables = (
        (cause_table(analysis), AS_A_TABLE, CAUSES),
        (ledger_table(analysis), None, ENTRIES),
    )
    return chart_card(
        "by-cause",
        # The figures above give the step time.
        replace(chart, title="Step time by cause"),
        below=[
            folded_table(table, summary, [drawn_as(entry_name(name, analysis)) for name in names])
            for table, summary, names in tables
        ],
    )


def _findings(analysis: Analysis, request: RunRequest) -> Any:
    """List further findings if there are any; the other pages show recorded steps only."""
    if not analysis.further_findings:
        return None
    linked = None if analysis.printed is not None else request.run_id
    return findings_card(analysis.further_findings, linked, request.baseline_id)


def _ranks(analysis: Analysis) -> Table | None:
    """Tabulate all ranks, stragglers first; nothing where steps were not recorded."""
    if not analysis.ranks:
        return None
    named = set(analysis.bottleneck.ranks)
    ordered = sorted(analysis.ranks, key=lambda rank: (rank.rank not in named, rank.rank))
    table = ranks_table(analysis, ranks=ordered)
    rows = tuple(
        (f"{rank} (slow)" if index in table.emphasised else rank, *cells)
        for index, (rank, *cells) in enumerate(table.rows)
    )
    return replace(
        table,
        rows=rows,
        words=frozenset({0, 1}),
        emphasised=frozenset(),
        note="The means per step of each rank.",
    )


def verdict_card(analysis: Analysis) -> Any:
    """Make the verdict's card, the first on the page."""
    bottleneck = analysis.bottleneck
    return sentence_card(
        headline(bottleneck, analysis.stragglers),
        bottleneck.evidence,
        status(bottleneck),
        _listed(TITLE, map(coded_words, why(analysis))),
        _gain(analysis),
        _listed("What to do", (advice_steps([advice]) for advice in bottleneck.advice)),
        label="Verdict",
        h="100%",
    )


def _gain(analysis: Analysis) -> Any:
    """Show the gain of fixing a fault; the evidence has the time that it saves.

    Without a fault, the evidence has the gain itself.
    """
    if loss_gain(analysis):
        return dmc.Text(loss_gain(analysis), mt="md")
    gain = main_gain(analysis)
    if gain is None or not analysis.bottleneck.fault:
        return None
    what_if = gain.what_if
    figure, of = as_fast(what_if)
    return dmc.Group(
        [
            dmc.Text(figure, className="gain", span=True),
            dmc.Text(
                f"{of} ({how_sure(what_if)})",
                size="sm",
                flex=1,
                miw=200,
            ),
        ],
        gap="md",
        mt="md",
        align="center",
    )


def _listed(title: str, contents: Iterable[Any]) -> Any:
    items = list(contents)
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
    """Show step time, its tail, throughput, and the loss against the baseline.

    Logs without recorded steps have the means of epochs instead; None if they have none either.
    """
    step = analysis.step
    figures = _epoch_figures(analysis) if step is None else _step_figures(analysis, step)
    if analysis.baseline is not None and (step is not None or analysis.gap is not None):
        figures.append(_against_baseline(analysis.gap))
    if not figures:
        return None
    return dmc.SimpleGrid(
        [_figure(*figure) for figure in figures],
        cols={"base": 2, "sm": len(figures)},
        spacing="md",
    )


def _step_figures(analysis: Analysis, step: StepTime) -> list[tuple[str, str, str | None]]:
    sure = None if step.ci95 is None else f"95% interval: {interval(step.ci95, 'ms')}"
    mean = ("Step time", exact(step.mean, "ms", step.ci95), sure)
    if analysis.printed is not None and not analysis.printed.recorded:
        return [mean, *_line_figures(analysis, analysis.printed)]
    slow = ("Slow steps", amount(step.p95, "ms"), "one step in twenty is slower")
    return [mean, slow, _throughput(analysis)]


def _line_figures(
    analysis: Analysis, printed: PrintedSteps
) -> Iterator[tuple[str, str, str | None]]:
    """Yield what lines have besides the mean step; what they lack is no figure."""
    median, wait, share_of_step = median_step(printed), printed.input_ms, printed.input_share
    if median:
        yield "Median step", median, "half of the steps are slower"
    if wait is not None and share_of_step is not None:
        of_step = f"{percent(share_of_step.value)} of the step"
        yield "Waiting for data", amount(wait.value, "ms", wait.ci95), of_step
    for pauses in printed.pauses:
        title = capitalised(PAUSES[pauses.kind][1])
        yield title, amount(pauses.seconds, "s"), f"{percent(pauses.share)} of the job"
    if analysis.samples_per_second is not None:
        yield _throughput(analysis)


def _epoch_figures(analysis: Analysis) -> list[tuple[str, str, str | None]]:
    """List what logs without recorded steps show, like the report."""
    figures: list[tuple[str, str, str | None]] = [
        (title, text, None) for title, text in epoch_figures(analysis)
    ]
    return figures if analysis.samples_per_second is None else [*figures, _throughput(analysis)]


def _throughput(analysis: Analysis) -> tuple[str, str, str]:
    tokens = analysis.tokens_per_second
    also = "" if tokens is None else f", {plus_minus(tokens.value, tokens.ci95)} tokens/s"
    return "Throughput", rate(analysis.samples_per_second), f"of all ranks together{also}"


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

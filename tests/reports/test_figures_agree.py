"""One figure per fact: sums add up as printed, and a value is inside its interval as printed."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from xml.etree import ElementTree

import plotly.graph_objects as go
import pytest
from dashboard.content import of_type, table_rows, texts
from rich.console import Console
from support.reports import rendered, summary

from stallscope.analysis import Analysis
from stallscope.analysis.comparison import compare
from stallscope.analysis.views.one_step import find_step
from stallscope.charts.charts import (
    baseline_chart,
    changes_chart,
    decomposition_chart,
    job_chart,
    ranks_chart,
)
from stallscope.charts.compared_bars import cause_chart, stages_chart
from stallscope.charts.plotly_figures import figure
from stallscope.charts.svg import draw
from stallscope.dashboard import RunStore
from stallscope.dashboard.pages.baseline_page import BaselinePage
from stallscope.dashboard.pages.overview_page import OverviewPage
from stallscope.dashboard.pages.run_page import RunRequest
from stallscope.dashboard.pages.step_page import StepPage, step_chart
from stallscope.formatting.sums import SumColumn
from stallscope.reports.comparison.pair import changes_table, outcome
from stallscope.reports.document import Table
from stallscope.reports.report_formats import ReportOptions
from stallscope.reports.run.run_tables import gains_table, job_table, ranks_table
from stallscope.reports.run.step_tables import (
    baselines_table,
    cause_table,
    ledger_table,
    step_unit,
)
from stallscope.text.baselines import decomposed
from stallscope.text.step_figures import OneStepFigures, StepFigures
from stallscope.text.vocabulary import TITLES, entry_title
from stallscope.words import CAUSES

from .cases import NAMES

_NUMBER = re.compile(r"[−+]?[\d,]+(?:\.\d+)?")


def number(text: str) -> Decimal | None:
    """Return the first number of a cell, as printed; None if there is none."""
    match = _NUMBER.match(text.removeprefix("at most "))
    if match is None:
        return None
    return Decimal(match[0].replace(",", "").replace("−", "-"))


def assert_adds_up(cells: Sequence[str]) -> None:
    """Assert that the last cell is the sum of the others, unless something was not measured."""
    values = [number(cell) for cell in cells]
    known = [value for value in values[:-1] if value is not None]
    if len(known) == len(values) - 1 and values[-1] is not None:
        assert sum(known) == values[-1], cells


def columns_of(table: Table) -> list[tuple[str, ...]]:
    return list(zip(*table.rows, strict=True))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("make_table", [cause_table, ledger_table])
def test_parts_of_the_step_add_up_as_printed(
    make_table: Callable[[Analysis], Table], name: str, case: Callable[[str], Analysis]
) -> None:
    table = make_table(case(name))
    columns = dict(zip(table.columns, columns_of(table), strict=True))
    for title, cells in columns.items():
        if title.startswith("Waiting"):
            assert_adds_up([*cells[:3], cells[-1]])
        elif not title.startswith(("Cause", "Entry", "Share", "On one rank")):
            assert_adds_up(cells)
    baseline = [cells for title, cells in columns.items() if title.startswith("Baseline")]
    if baseline:
        (difference,) = (c for title, c in columns.items() if title.startswith("Difference"))
        for value, base, more in zip(columns_of(table)[1], *baseline, difference, strict=True):
            assert_adds_up([base, more, value])


@pytest.mark.parametrize("name", NAMES)
def test_the_loss_to_real_data_adds_up_as_printed(
    name: str, case: Callable[[str], Analysis]
) -> None:
    table = baselines_table(case(name))
    if table is not None:
        rows = {row[0]: row[1] for row in table.rows}
        parts = [cell for title, cell in rows.items() if title.startswith("of it")]
        assert len(parts) == 4
        assert_adds_up([*parts, rows["Lost to real data"]])


@pytest.mark.parametrize("name", NAMES)
def test_speed_ups_lie_inside_their_intervals_as_printed(
    name: str, case: Callable[[str], Analysis]
) -> None:
    table = gains_table(case(name))
    for _, _, speedup, interval in () if table is None else table.rows:
        value, ends = number(speedup), _NUMBER.findall(interval.replace("–", " "))
        if value is not None and len(ends) == 2:
            assert Decimal(ends[0]) <= value <= Decimal(ends[1])


def printed_in(text: str) -> Decimal:
    """Return a figure of a chart in its unit; a chart and the tables share one unit."""
    value = number(text)
    assert value is not None, text
    return value


def cells_of(table: Table, title: str) -> dict[str, str]:
    """Return a column of a table by the names of its rows; empty if the table lacks it."""
    at = [index for index, column in enumerate(table.columns) if column.startswith(title)]
    return {row[0]: row[at[0]] for row in table.rows} if at else {}


def labels_of(drawn: go.Figure, bar: int) -> dict[str, Decimal]:
    """Return the label of every segment of a bar, by the segment's title."""
    texts = {trace.name: trace.text[bar] for trace in drawn.data}
    return {title: printed_in(text) for title, text in texts.items() if text}


@pytest.mark.parametrize("name", NAMES)
def test_the_bar_of_causes_has_the_tables_figures(
    name: str, case: Callable[[str], Analysis]
) -> None:
    analysis = case(name)
    chart, table = cause_chart(analysis), cause_table(analysis)
    if chart is None:
        return
    columns = [f"{step_unit(analysis)} per step", "Baseline"]
    drawn = figure(chart, dark=False)
    for bar, column in zip(range(len(chart.bars)), columns, strict=False):
        cells, labels = cells_of(table, column), labels_of(drawn, bar)
        for cause in CAUSES:
            title = entry_title(cause, analysis)
            waiting = TITLES.get(f"{cause}_waiting", "")
            whole = labels[title] + labels.get(waiting, Decimal(0))
            assert whole == number(cells[title]), (title, column)
        assert sum(labels.values()) == number(cells["Step"])
        hovers = [trace.hovertext[bar] for trace in drawn.data if trace.hovertext[bar]]
        assert all(f"of {cells['Step'].partition(' ±')[0]} " in hover for hover in hovers)
    tips = "".join(ElementTree.fromstring(draw(chart, "key")).itertext())
    for cause in CAUSES:
        for label in labels_of(drawn, 0).values():
            assert f"{label:,}".replace("-", "−") in tips, cause


@pytest.mark.parametrize("name", NAMES)
def test_waterfalls_have_the_tables_figures(name: str, case: Callable[[str], Analysis]) -> None:
    analysis = case(name)
    chart, table = baseline_chart(analysis), cause_table(analysis)
    if chart is None:
        return
    notes = [note.text for note in figure(chart, dark=False).layout.annotations]
    differences = [cell.partition(" ±")[0] for cell in cells_of(table, "Difference").values()]
    unit = step_unit(analysis)
    assert notes[1:-1] == [f"{cell} {unit}" for cell in differences[:-1]]
    assert number(notes[0]) == number(cells_of(table, "Baseline")["Step"])
    assert number(notes[-1]) == number(cells_of(table, f"{unit} per step")["Step"])
    assert_adds_up(notes)
    tips = list(ElementTree.fromstring(draw(chart, "key")).itertext())
    assert set(notes) <= set(tips)


@pytest.mark.parametrize("name", NAMES)
def test_the_chart_of_losses_has_the_tables_figures(
    name: str, case: Callable[[str], Analysis]
) -> None:
    analysis = case(name)
    chart, table = decomposition_chart(analysis), baselines_table(analysis)
    if chart is None or table is None:
        return
    notes = [note.text for note in figure(chart, dark=False).layout.annotations]
    assert_adds_up(notes)
    cells = {row[0]: number(row[1]) for row in table.rows}
    parts = [value for title, value in cells.items() if title.startswith("of it")]
    assert [number(note) for note in notes[-5:-1]] == parts
    if "Lost to scale" in cells:
        assert number(notes[1]) == cells["Lost to scale"]


@pytest.mark.parametrize("name", NAMES)
def test_the_ledgers_agree_as_printed(name: str, case: Callable[[str], Analysis]) -> None:
    """A cause is the typical rank's stage plus the others' waiting for it; allreduce is one figure."""
    causes, ledger = cause_table(case(name)), ledger_table(case(name))
    amounts, waits = cells_of(causes, causes.columns[1]), cells_of(causes, "Waiting")
    typical = cells_of(ledger, ledger.columns[1])
    for title in ("Input", "Compute", "Other"):
        assert_adds_up([typical[title], waits[title], amounts[title]])
    assert number(typical["Waiting for slow ranks"]) == number(waits["Step"])
    for title in (causes.rows[3][0], "Step"):
        assert typical[title] == amounts[title]


@pytest.mark.parametrize("name", NAMES)
def test_sentences_have_the_tables_figures(name: str, case: Callable[[str], Analysis]) -> None:
    table, printed = baselines_table(case(name)), decomposed(case(name))
    for title, figure_of, _ in () if table is None else table.rows:
        if title == "Lost to real data" or title.startswith("of it"):
            assert figure_of.lstrip("+−") in printed, title


@pytest.mark.parametrize("name", NAMES)
def test_the_chart_of_stages_has_the_tables_figures(
    name: str, case: Callable[[str], Analysis]
) -> None:
    chart, table = stages_chart(case(name)), cause_table(case(name))
    if chart is None or not case(name).by_cause:
        return
    amounts = cells_of(table, table.columns[1])
    for group, cause in enumerate(CAUSES):
        printed = amounts[entry_title(cause, case(name))]
        assert (
            chart.text(group, 0).rpartition(" ")[0].partition(" ±")[0] == printed.partition(" ±")[0]
        )
    waits = number(cells_of(table, "Waiting")["Step"])
    assert number(chart.text(len(CAUSES), 0)) == waits


@pytest.mark.parametrize("name", NAMES)
def test_each_ranks_step_is_rounded_like_the_step(
    name: str, case: Callable[[str], Analysis]
) -> None:
    analysis = case(name)
    chart, figures = ranks_chart(analysis), StepFigures.of(analysis)
    for bar in () if chart is None or figures is None else chart.bars:
        assert bar.printed is not None
        assert bar.printed.total == figures.rounded(
            sum(segment.value for segment in bar.segments)
        ), bar.label


@pytest.mark.parametrize("name", NAMES)
def test_the_jobs_parts_add_up_as_printed(name: str, case: Callable[[str], Analysis]) -> None:
    analysis = case(name)
    parts = [row[1] for row in job_table(analysis).rows]
    assert_adds_up(parts)
    chart = job_chart(analysis)
    if chart is not None:
        labels = [trace.text[0] for trace in figure(chart, dark=False).data]
        assert labels == parts[:-1]


@pytest.mark.broad
@pytest.mark.parametrize("name", NAMES)
def test_the_dashboard_has_the_reports_figures(name: str, case: Callable[[str], Analysis]) -> None:
    analysis = case(name)
    request = RunRequest(analysis.run.id, None, analysis, {}, {})
    tables = [(OverviewPage, ranks_table(analysis)), (BaselinePage, baselines_table(analysis))]
    if analysis.by_cause:
        tables += [(OverviewPage, cause_table(analysis)), (OverviewPage, ledger_table(analysis))]
    for page, table in tables:
        # Only with a baseline does its page have the table.
        if table is None:
            continue
        cells = set(texts(page().parts(request, RunStore([]))))
        for row in table.rows:
            figures = {cell for cell in row[1:] if number(cell) is not None}
            assert figures <= cells, row


@pytest.mark.broad
@pytest.mark.parametrize("name", NAMES)
def test_every_figure_of_a_step_adds_up_as_printed(
    name: str, case: Callable[[str], Analysis]
) -> None:
    analysis = case(name)
    if analysis.ledger is None or not len(analysis.ledger):
        return
    number_of_it = int(analysis.ledger.steps[len(analysis.ledger) // 2])
    step = find_step(analysis, number_of_it)
    assert step is not None
    path_values = {"step": str(number_of_it)}
    request = RunRequest(analysis.run.id, None, analysis, path_values, {})
    content = StepPage().parts(request, RunStore([]))
    regions = [div for div in of_type(content, "Div") if getattr(div, "role", "") == "region"]
    labels = [getattr(region, "aria-label") for region in regions]
    _, *ranks = table_rows(content, "Ranks")
    drawn = step_chart(OneStepFigures.of(analysis, step))
    totals = {bar.total for bar in drawn.printed}
    assert len(totals) == 1
    by_rank = {int(row[0]): row for row in ranks}
    waited = number(by_rank[step.reference][5])
    for row in by_rank.values():
        input_, compute, other_work, wait, late = map(number, row[2:])
        assert None not in (input_, compute, other_work, wait, late, waited)
        assert wait + late == waited, row
        assert other_work + input_ + compute + wait == sum(map(number, by_rank[step.last][2:6])), (
            row
        )
    if "Against the mean step" in labels:
        _, *rows = table_rows(content, "Against the mean step")
        columns = list(zip(*rows, strict=True))
        this, waits, mean, difference = columns[1:]
        for cells in (this, mean, difference):
            assert_adds_up(cells)
        assert_adds_up([*waits[:3], waits[-1]])
        assert number(waits[-1]) == waited
        last = by_rank[step.last]
        assert [number(cell) for cell in this[:3]] == [number(last[at]) for at in (2, 3, 4)]
        for value, base, more in zip(this, mean, difference, strict=True):
            assert_adds_up([base, more, value])


@pytest.mark.parametrize("name", ["a slow rank and a baseline", "everything"])
def test_two_runs_are_compared_in_the_same_figures_everywhere(
    name: str, case: Callable[[str], Analysis]
) -> None:
    analysis = case(name)
    assert analysis.baseline is not None
    comparison = compare(analysis.baseline, analysis)
    table, chart = changes_table(comparison), changes_chart(comparison)
    assert table is not None
    assert chart is not None
    for column in columns_of(Table("", table.columns, table.rows[:-1]))[1:4]:
        assert_adds_up(column)
    for row in table.rows:
        assert_adds_up([row[1], row[3], row[2]])
    notes = [note.text for note in figure(chart, dark=False).layout.annotations]
    differences = [row[3].partition(" ±")[0] for row in table.rows[: len(CAUSES)]]
    assert [note.rpartition(" ")[0] for note in notes[1:-1]] == differences
    assert_adds_up(notes)
    # The sentence has the step and its difference as the table has them.
    (step,) = (row for row in table.rows if row[0] == "Step")
    amounts = re.findall(r"[\d.]+(?= ms| ± )", outcome(comparison)[1])
    assert amounts[:3] == [cell.partition(" ±")[0].strip("+−") for cell in step[1:4]]


@pytest.mark.parametrize("name", ["a slow rank and a baseline", "everything", "two ranks"])
def test_every_format_has_the_same_figures(
    name: str, case: Callable[[str], Analysis], options: ReportOptions
) -> None:
    analysis = case(name)
    console = Console(width=100, file=io.StringIO(), color_system=None)
    console.print(summary(analysis))
    printed = console.file.getvalue()  # type: ignore[attr-defined]
    html, markdown = (
        rendered("html", analysis, options),
        rendered("md", analysis, options),
    )
    for _, ms, share, *_ in cause_table(analysis).rows[:-1]:
        for text in (printed, html, markdown):
            assert ms.replace("<", "&lt;") in text or ms in text
            assert share in text


@pytest.mark.parametrize(
    ("parts", "printed"),
    [([0.26, 0.26, 0.48], [0.3, 0.2, 0.5]), ([62.94, 23.44, 1.55, 3.48], [62.9, 23.4, 1.6, 3.5])],
)
def test_the_largest_remainders_are_rounded_up(parts: list[float], printed: list[float]) -> None:
    total = sum(parts)
    column = SumColumn.of(parts, total, (total - 0.3, total + 0.3))
    assert list(column.parts) == printed
    assert column.total == pytest.approx(sum(printed))

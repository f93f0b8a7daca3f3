"""One figure per fact: sums add up as printed, and a value lies inside its interval as printed."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from decimal import Decimal

import pytest
from rich.console import Console

from stallscope.analysis import Analysis
from stallscope.reports.base import ReportOptions
from stallscope.reports.html import HtmlReport
from stallscope.reports.markdown import MarkdownReport
from stallscope.reports.tables import (
    Table,
    baselines_table,
    cause_table,
    gains_table,
    ledger_table,
)
from stallscope.reports.terminal import summary
from stallscope.wording.sums import SumColumn

from .cases import CASES

_NUMBER = re.compile(r"[−+]?[\d,]+(?:\.\d+)?")


def number(text: str) -> Decimal | None:
    """The first number of a cell, as it is printed; None where there is none."""
    found = _NUMBER.match(text.removeprefix("at most "))
    if found is None:
        return None
    return Decimal(found[0].replace(",", "").replace("−", "-"))


def assert_adds_up(cells: Sequence[str]) -> None:
    """The last cell is the sum of the others, unless something was not measured."""
    values = [number(cell) for cell in cells]
    known = [value for value in values[:-1] if value is not None]
    if len(known) == len(values) - 1 and values[-1] is not None:
        assert sum(known) == values[-1], cells


def columns_of(table: Table) -> list[tuple[str, ...]]:
    return list(zip(*table.rows, strict=True))


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("made", [cause_table, ledger_table])
def test_parts_of_the_step_add_up_as_printed(
    made: Callable[[Analysis], Table], name: str, case: Callable[[str], Analysis]
) -> None:
    table = made(case(name))
    columns = dict(zip(table.columns, columns_of(table), strict=True))
    for title, cells in columns.items():
        if title.startswith("Others wait"):
            assert_adds_up([*cells[:3], cells[-1]])
        elif not title.startswith(("Cause", "Entry", "Share", "On one rank")):
            assert_adds_up(cells)
    baseline = [cells for title, cells in columns.items() if title.startswith("Baseline")]
    if baseline:
        (difference,) = (c for title, c in columns.items() if title.startswith("Difference"))
        for own, base, more in zip(columns_of(table)[1], *baseline, difference, strict=True):
            assert_adds_up([base, more, own])


@pytest.mark.parametrize("name", CASES)
def test_what_is_lost_to_real_data_adds_up_as_printed(
    name: str, case: Callable[[str], Analysis]
) -> None:
    table = baselines_table(case(name))
    if table is not None:
        rows = {row[0]: row[1] for row in table.rows}
        parts = [cell for title, cell in rows.items() if title.startswith("of it")]
        assert len(parts) == 4
        assert_adds_up([*parts, rows["Lost to real data"]])


@pytest.mark.parametrize("name", CASES)
def test_speed_ups_lie_inside_their_intervals_as_printed(
    name: str, case: Callable[[str], Analysis]
) -> None:
    table = gains_table(case(name))
    for _, _, speedup, interval in () if table is None else table.rows:
        value, ends = number(speedup), _NUMBER.findall(interval.replace("–", " "))
        if value is not None and len(ends) == 2:
            assert Decimal(ends[0]) <= value <= Decimal(ends[1])


@pytest.mark.parametrize("name", ["a slow rank and a baseline", "everything", "two ranks"])
def test_every_format_has_the_same_figures(
    name: str, case: Callable[[str], Analysis], options: ReportOptions
) -> None:
    analysis = case(name)
    console = Console(width=100, file=io.StringIO(), color_system=None)
    console.print(summary(analysis))
    printed = console.file.getvalue()  # type: ignore[attr-defined]
    html, markdown = (
        HtmlReport().render(analysis, options),
        MarkdownReport().render(analysis, options),
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

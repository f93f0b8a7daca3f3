"""CSV: one figure per row, for pivot tables; no cell that a spreadsheet would run."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable

import pytest
from support.reports import rendered

from stallscope.analysis import Analysis
from stallscope.reports.report_formats import ReportOptions

from .cases import NAMES

COLUMNS = [
    "run_id",
    "scope",
    "rank",
    "host",
    "name",
    "ms",
    "share",
    "ci_low_ms",
    "ci_high_ms",
    "baseline_ms",
    "excess_ms",
    "waiting_ms",
]

Rows = list[dict[str, str]]


@pytest.fixture
def rows(case: Callable[[str], Analysis], options: ReportOptions) -> Callable[[str], Rows]:
    def read(name: str) -> Rows:
        text = rendered("csv", case(name), options)
        reader = csv.DictReader(io.StringIO(text, newline=""))
        assert reader.fieldnames == COLUMNS
        return list(reader)

    return read


def test_ledger_rows_add_up_to_the_mean_step(rows: Callable[[str], Rows]) -> None:
    table = rows("a slow rank and a baseline")
    (mean,) = [row for row in table if (row["scope"], row["name"]) == ("step", "mean")]
    for scope in ("by_cause", "ledger"):
        parts = [row for row in table if row["scope"] == scope]
        for column in ("ms", "baseline_ms", "excess_ms"):
            assert sum(float(row[column]) for row in parts) == pytest.approx(float(mean[column]))
    assert float(mean["ci_low_ms"]) < float(mean["ms"]) < float(mean["ci_high_ms"])


def test_waiting_adds_up_to_the_imbalance(rows: Callable[[str], Rows]) -> None:
    table = rows("a slow rank and a baseline")
    waiting = {row["name"]: row["waiting_ms"] for row in table if row["scope"] == "by_cause"}
    (imbalance,) = [row for row in table if row["name"] == "imbalance"]
    assert waiting.pop("allreduce") == ""
    assert sum(map(float, waiting.values())) == pytest.approx(float(imbalance["ms"]))


@pytest.mark.broad
def test_every_rank_has_a_row_per_stage(rows: Callable[[str], Rows]) -> None:
    ranks = [row for row in rows("a thousand ranks") if row["scope"] == "rank"]
    assert len(ranks) == 1000 * 5
    assert {row["rank"] for row in ranks} == {str(rank) for rank in range(1000)}
    slow = {row["name"]: float(row["ms"]) for row in ranks if row["rank"] == "17"}
    assert slow["compute"] == pytest.approx(40, rel=0.02)
    assert slow["wait"] == 0


def test_a_rank_is_compared_with_the_same_rank_of_the_baseline(rows: Callable[[str], Rows]) -> None:
    (row,) = [
        row
        for row in rows("a slow rank and a baseline")
        if (row["scope"], row["rank"], row["name"]) == ("rank", "2", "input")
    ]
    assert float(row["baseline_ms"]) == pytest.approx(0.5, rel=0.05)
    assert float(row["excess_ms"]) == pytest.approx(12.5, rel=0.02)


def test_unmeasured_values_are_empty_and_not_zero(rows: Callable[[str], Rows]) -> None:
    table = rows("host stamps only")
    assert {row["ms"] for row in table if row["scope"] == "rank"} == {""}
    assert [row for row in table if row["scope"] == "ledger"] == []
    assert float(table[0]["ms"]) > 0


@pytest.mark.broad
@pytest.mark.parametrize("name", NAMES)
def test_no_cell_is_a_formula(name: str, rows: Callable[[str], Rows]) -> None:
    for row in rows(name):
        for column in ("run_id", "host", "name"):
            assert not row[column].startswith(("=", "+", "-", "@", "\t", "\r", "＝"))


def test_a_formula_from_a_log_is_shown_as_text(rows: Callable[[str], Rows]) -> None:
    table = rows("hostile names")
    assert table[0]["run_id"].startswith("'=HYPERLINK(")
    assert {row["host"] for row in table if row["scope"] == "rank"} == {
        "'=cmd|'\"><img src=x onerror=alert(1)>\\u202e "
    }


def test_lines_end_as_spreadsheets_expect(
    case: Callable[[str], Analysis], options: ReportOptions
) -> None:
    text = rendered("csv", case("hostile names"), options)
    assert text.count("\n") == text.count("\r\n")
    assert text.endswith("\r\n")


def test_epochs_have_rows_if_there_are_no_steps(rows: Callable[[str], Rows]) -> None:
    epochs = [row for row in rows("epochs of two ranks only") if row["scope"] == "epoch"]
    assert [(row["rank"], row["name"]) for row in epochs] == [
        ("0", "fit 0 epoch 0"),
        ("1", "fit 0 epoch 0"),
        ("0", "fit 0 epoch 1"),
        ("1", "fit 0 epoch 1"),
    ]
    assert float(epochs[0]["ms"]) == pytest.approx(17004)
    short = [row for row in rows("epochs that are shorter than a second") if row["name"]]
    assert {row["ci_low_ms"] for row in short if row["scope"] == "epoch"} == {"0.0"}
    assert not [row for row in rows("two ranks") if row["scope"] == "epoch"]

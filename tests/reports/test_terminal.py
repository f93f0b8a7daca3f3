"""The summary in a terminal of 80 columns."""

from __future__ import annotations

import io
import re
from collections.abc import Callable

import pytest
from rich.console import Console

from stallscope.analysis import Analysis
from stallscope.reports.terminal import summary

from .cases import CASES


def printed(analysis: Analysis, width: int = 80) -> str:
    console = Console(width=width, file=io.StringIO(), color_system=None)
    console.print(summary(analysis))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize("name", CASES)
def test_it_fits_80_columns(name: str, case: Callable[[str], Analysis]) -> None:
    lines = printed(case(name)).splitlines()
    assert max(map(len, lines)) <= 80
    assert len(lines) < 60


def test_the_verdict_comes_first(case: Callable[[str], Analysis]) -> None:
    lines = printed(case("a slow rank and a baseline")).splitlines()
    assert "run-a: Slow ranks" in lines[0]
    assert "Rank 2 holds this run back: its input is slow" in lines[1]


def test_bars_are_as_long_as_entries(case: Callable[[str], Analysis]) -> None:
    analysis = case("a slow rank and a baseline")
    text = printed(analysis)
    bars = {line.split("  ")[0]: line.count("█") for line in text.splitlines() if "█" in line}
    assert bars["Compute"] == 22
    imbalance, compute = analysis.entry("imbalance"), analysis.entry("compute")
    assert imbalance is not None
    assert compute is not None
    assert bars["Imbalance"] == pytest.approx(22 * imbalance.ms / compute.ms, abs=1)


def test_every_entry_has_interval_and_share(case: Callable[[str], Analysis]) -> None:
    lines = printed(case("two ranks")).splitlines()
    for name in ("Input", "Compute", "Other", "Imbalance", "Exposed allreduce"):
        (line,) = [line for line in lines if line.startswith(name)]
        assert re.search(r" \d\S* ± \S+ (ms|µs) +\d+\.\d%$", line.rstrip())


def test_the_excess_over_the_baseline_is_shown(case: Callable[[str], Analysis]) -> None:
    text = printed(case("a slow rank and a baseline"))
    assert "excess, ms" in text
    (line,) = [line for line in text.splitlines() if line.startswith("Input")]
    assert line.rstrip().endswith("+0.50")
    assert "excess" not in printed(case("a slow rank"))


def test_only_named_ranks_are_listed_where_ranks_are_named(case: Callable[[str], Analysis]) -> None:
    lines = printed(case("a thousand ranks")).splitlines()
    title = next(index for index, line in enumerate(lines) if line.startswith("Named ranks"))
    assert lines[title + 2].split() == ["17", "alpha", *lines[title + 2].split()[2:-1], "100%"]
    assert lines[title + 3].strip() == ""


def test_otherwise_the_latest_ranks_are_listed_and_nobody_is_named(
    case: Callable[[str], Analysis],
) -> None:
    assert "Latest ranks (no rank is named)" in printed(case("two ranks"))
    assert "ranks" not in printed(case("one rank")).lower()


def test_without_stages_it_says_so_and_promises_nothing(case: Callable[[str], Analysis]) -> None:
    text = printed(case("host stamps only"))
    assert "Stages of the steps: not measured; a step takes" in text
    assert "What fixing gains" not in text
    assert "what it went to was not measured" in text
    assert "0 ms" not in text.replace("00 ms", "")


def test_findings_and_warnings_are_shown(case: Callable[[str], Analysis]) -> None:
    assert "error: Only rank 0 was recorded." in printed(case("rank 0 only"))
    assert "1 warning\nrank-00001.0.0.steps.csv: 1 torn" in printed(case("a torn line"))


def test_names_from_logs_cannot_drive_the_terminal(case: Callable[[str], Analysis]) -> None:
    text = printed(case("hostile names"), width=400)
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert r"\u202eevil" in text

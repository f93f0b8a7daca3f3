"""The summary in a terminal of 80 columns."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from dataclasses import replace

import pytest
from rich.console import Console
from support.reports import summary

from stallscope.analysis import Analysis

from .cases import NAMES


def printed(analysis: Analysis, width: int = 80) -> str:
    console = Console(width=width, file=io.StringIO(), color_system=None)
    console.print(summary(analysis))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize("name", NAMES)
def test_it_fits_80_columns(name: str, case: Callable[[str], Analysis]) -> None:
    lines = printed(case(name)).splitlines()
    assert max(map(len, lines)) <= 80
    assert len(lines) <= 60


def test_the_verdict_comes_first(case: Callable[[str], Analysis]) -> None:
    lines = printed(case("a slow rank and a baseline")).splitlines()
    assert "run-a: Slow ranks" in lines[0]
    assert "Rank 2 holds this run back: its input is slow" in lines[1]


def test_bars_are_as_long_as_entries(case: Callable[[str], Analysis]) -> None:
    analysis = case("a slow rank and a baseline")
    text = printed(analysis)
    lines = [line for line in text.splitlines() if "█" in line]
    bars = {line.split("  ")[0]: (line.count("█"), line.count("▒")) for line in lines}
    input_, compute = analysis.cause("input"), analysis.cause("compute")
    assert input_ is not None
    assert compute is not None
    scale = 22 / max(entry.ms for entry in analysis.by_cause)
    assert sum(bars["Compute"]) == pytest.approx(scale * compute.ms, abs=1)
    assert sum(bars["Input"]) == pytest.approx(scale * input_.ms, abs=1)
    # The shaded end is the time that other ranks wait.
    assert bars["Input"][1] == pytest.approx(scale * input_.waiting_ms, abs=1)


def test_every_entry_has_interval_and_share(case: Callable[[str], Analysis]) -> None:
    lines = printed(case("two ranks")).splitlines()
    for name in ("Input", "Compute", "Other", "Exposed allreduce"):
        (line,) = [line for line in lines if line.startswith(name)]
        assert re.search(r" \d\S* ± \S+ (ms|µs) +\d+\.\d%$", line.rstrip())
    assert any(line.startswith("▒ waiting for slow ranks") for line in lines)


def test_the_excess_over_the_baseline_is_shown(case: Callable[[str], Analysis]) -> None:
    text = printed(case("a slow rank and a baseline"))
    assert " difference" in text
    (line,) = [line for line in text.splitlines() if line.startswith("Input")]
    assert re.search(r"\+1[23]\.\d+$", line.rstrip())
    assert " difference" not in printed(case("a slow rank"))


def test_only_named_ranks_are_listed_if_any_are_named(case: Callable[[str], Analysis]) -> None:
    lines = printed(case("a thousand ranks")).splitlines()
    title = next(index for index, line in enumerate(lines) if line.startswith("Named ranks"))
    assert lines[title + 2].split() == ["17", "alpha", *lines[title + 2].split()[2:-1], "100%"]
    assert lines[title + 3].strip() == ""


def test_otherwise_the_latest_ranks_are_listed_without_a_straggler(
    case: Callable[[str], Analysis],
) -> None:
    assert "Ranks, latest first (no straggler found)" in printed(case("two ranks"))
    assert "ranks" not in printed(case("one rank")).lower()


def test_without_stages_it_says_so_and_predicts_no_gain(case: Callable[[str], Analysis]) -> None:
    text = printed(case("host stamps only"))
    assert "Stages of the steps: not measured; a step takes" in text
    assert "Potential gains" not in text
    assert "its parts were not measured" in text
    assert "0 ms" not in text.replace("00 ms", "")


def test_epochs_are_shown_if_there_are_no_steps(case: Callable[[str], Analysis]) -> None:
    text = printed(case("epochs only"))
    assert "Stages of the steps: not measured" in text
    assert re.search(r"^Mean epoch: +17\.00 ± 0\.04 s", text, re.MULTILINE)
    assert re.search(r"^Mean step: +218\.0 ± 0\.5 ms", text, re.MULTILINE)
    assert re.search(r"^ +2 +17\.00 ± 0\.04 s$", text, re.MULTILINE)
    assert "Job: at least 51.0 s" in text
    assert "StepLogger" in text
    assert re.search(r"^and 290 more *$", printed(case("many epochs only")), re.MULTILINE)
    assert "Throughput per rank:  3,158 samples/s" in printed(case("samples of epochs only"))


def test_findings_and_warnings_are_shown(case: Callable[[str], Analysis]) -> None:
    text = printed(case("rank 0 only"))
    assert "error: Only rank 0's log is here." in text
    assert "waiting for slow ranks" not in text
    assert "last in" not in text
    assert "Warnings\n! rank-00001.0.0.steps.csv: 1 torn" in printed(case("a torn line"))


def test_names_from_logs_cannot_drive_the_terminal(case: Callable[[str], Analysis]) -> None:
    text = printed(case("hostile names"), width=400)
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert r"\u202eevil" in text


def test_stragglers_are_listed(case: Callable[[str], Analysis]) -> None:
    lines = printed(case("a slow rank")).splitlines()
    at = lines.index(next(line for line in lines if line.startswith("Stragglers")))
    assert re.match(
        r"rank 2 +all the time +Input +12\.\d+ ± \S+ ms +100% +1\d\.\d+ ± \S+ ms$",
        lines[at + 2].rstrip(),
    )
    assert lines[at + 3].strip() == ""
    assert "Stragglers" not in printed(case("two ranks"))


def test_many_stragglers_are_cut(case: Callable[[str], Analysis]) -> None:
    analysis = case("a slow rank")
    many = replace(analysis, stragglers=analysis.stragglers * 8)
    assert re.search(r"^and 3 more *$", printed(many), re.MULTILINE)


def test_losses_and_answers_are_shown(case: Callable[[str], Analysis]) -> None:
    text = printed(case("everything"))
    assert re.search(r"^Lost to real data +\+8\.\d+ ± ", text, re.MULTILINE)
    assert re.search(r"^of it: input stall +\+8\.\d+ ± ", text, re.MULTILINE)
    assert re.search(r"^Lost to scale +\+1\d\.\d ± ", text, re.MULTILINE)
    assert re.search(r"^On 64 ranks \(extrapolated\) +7\.\d\d× throughput", text, re.MULTILINE)
    assert "from all bandwidth to all latency" in " ".join(text.split())
    assert "Communication: 100 MB of gradients" in text
    assert "Against the baselines" not in printed(case("a slow rank"))

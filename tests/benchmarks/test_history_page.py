"""The page of benchmarks over commits."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from support.benchmarks import benchmark

figures, history_page, paired, run = map(benchmark, ("figures", "history_page", "paired", "run"))


def line(*entries: Any, commit: str = "0123456789ab") -> dict[str, Any]:
    """Return a line of the history."""
    return {
        "date": "2026-11-23T13:22:14+00:00",
        "commit": commit,
        "machine": {"cpu": "AMD EPYC", "cores": 2},
        "benchmarks": [{"name": "host_part", "figures": [asdict(entry) for entry in entries]}],
    }


def charts_of(*lines: dict[str, Any]) -> list[Any]:
    runs = [history_page.KeptRun.of(content) for content in lines]
    return [chart for charts in history_page.charts_of(runs).values() for chart in charts]


def test_a_figure_is_drawn_over_the_runs_with_its_interval_and_target() -> None:
    cost = [
        figures.at_most("cost", value, "µs", 5, interval=(value - 1, value + 1)) for value in (3, 4)
    ]
    (chart,) = charts_of(line(cost[0], commit="aaaaaaaaaaaa"), line(cost[1]))
    assert [(dot.name, dot.mean.value, dot.mean.ci95) for dot in chart.dots] == [
        ("2026-11-23 13:22, aaaaaaaaaaaa", 3, (2, 4)),
        ("2026-11-23 13:22, 0123456789ab", 4, (3, 5)),
    ]
    ((level),) = chart.levels
    assert (level.first, level.last, level.begin, level.end) == (1, 2, 5, 5)
    assert chart.sentence == "Last: 4 µs. Target: at most 5 µs, met."


def test_a_target_that_is_a_ratio_is_drawn_with_ratios() -> None:
    ratio = paired.Difference(1.6, 1.5, 1.8)
    measured = figures.times_as_much("time", 8.0, "µs", "a bare tool", 5.0, ratio, 2)
    share = figures.share_of("size", 45.0, "B", "Timeline", 900.0, most=0.02, interval=(36.0, 54.0))
    times, shares = charts_of(line(measured, share))
    assert (times.dots[0].mean.value, times.dots[0].mean.ci95) == (1.6, (1.5, 1.8))
    assert (times.levels[0].begin, times.unit) == (2, "")
    assert shares.dots[0].mean.value == pytest.approx(0.05)
    assert shares.dots[0].mean.ci95 == pytest.approx((0.04, 0.06))
    assert shares.levels[0].begin == 0.02


def test_a_figure_that_a_run_lacks_or_has_in_another_unit_is_missing_there() -> None:
    second = figures.at_most("other", 1.0, "s", 5)
    (chart,) = charts_of(
        line(second),
        line(figures.at_most("cost", 4e3, "ns", 5e3)),
        line(figures.at_most("cost", 4.0, "µs", 5)),
    )
    assert [dot.mean is None for dot in chart.dots] == [True, True, False]


def test_the_command_draws_the_kept_history_as_one_page_that_needs_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "benchmarks.html"
    monkeypatch.setattr(run, "PAGE", page)
    monkeypatch.setattr(sys, "argv", ["run.py", "--history"])
    run.main()
    assert capsys.readouterr().out == f"written to {page}\n"
    text = page.read_text()
    assert "prefers-color-scheme:dark" in text
    assert not any(
        word in text for word in ("<script", '<link rel="stylesheet', "url(http", 'src="http')
    )
    last = json.loads(run.HISTORY.read_text().splitlines()[-1])
    named = sum(len(measured["figures"]) for measured in last["benchmarks"])
    drawings = [f"<svg{part.partition('</svg>')[0]}</svg>" for part in text.split("<svg")[1:]]
    assert len(drawings) == named
    for drawing in drawings:
        ElementTree.fromstring(drawing)


def test_an_empty_history_is_refused(tmp_path: Path) -> None:
    history = tmp_path / "history.jsonl"
    history.touch()
    with pytest.raises(ValueError, match="make bench ARGS=--keep"):
        history_page.page(history)

"""The index of many runs: ranking, trends, and all formats."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable
from dataclasses import asdict, replace

import pytest
from support.schemas import errors_in

from stallscope.analysis import Analysis
from stallscope.reports.index import Index, IndexLine, by_time_lost, line_of, parts
from stallscope.reports.index.index_document import trends
from stallscope.reports.report_formats import SEVERAL_RUNS, ReportOptions
from stallscope.reports.report_formats import render as rendered
from stallscope.text.gain_words import main_gain

NAMES = (
    "a slow rank and a baseline",
    "two ranks",
    "everything",
    "host stamps only",
    "hostile names with stages",
    "epochs only",
)


def render(name: str, index: Index, options: ReportOptions) -> str:
    return rendered(name, parts(index), options)


every_format = pytest.mark.parametrize("name", SEVERAL_RUNS)


@pytest.fixture(scope="module")
def lines(case: Callable[[str], Analysis]) -> list[IndexLine]:
    return [line_of(case(name), f"run-{at}") for at, name in enumerate(NAMES)]


@pytest.fixture
def index(lines: list[IndexLine]) -> Index:
    files = frozenset(f"{line.stem}{end}" for line in lines for end in (".html", ".md"))
    return Index(lines, ["<img src=x>: no such file"], files - {"run-1.html"})


def test_time_lost_is_the_gain_of_the_fix_times_steps_and_ranks(
    case: Callable[[str], Analysis],
) -> None:
    analysis = case("a slow rank and a baseline")
    gain = main_gain(analysis)
    assert gain is not None
    assert gain.what_if.saved_ms.ci95 is not None
    line = line_of(analysis, "x")
    times = analysis.steps * analysis.run.size / 3.6e6
    assert line.lost_h == pytest.approx(gain.what_if.saved_ms.value * times)
    assert line.lost_ci95_h == pytest.approx([end * times for end in gain.what_if.saved_ms.ci95])


@pytest.mark.parametrize("name", ["host stamps only", "epochs only"])
def test_unknown_figures_are_missing_and_not_zero(
    name: str, case: Callable[[str], Analysis]
) -> None:
    line = line_of(case(name), "x")
    assert (line.lost_h, line.lost_ci95_h, line.fix, line.by_cause_ms) == (None, None, None, {})


def test_runs_are_ranked_by_time_lost_and_unknown_ones_come_last(lines: list[IndexLine]) -> None:
    ranked = by_time_lost(lines)
    known = [line.lost_h for line in ranked if line.lost_h is not None]
    assert known == sorted(known, reverse=True)
    assert [line.lost_h for line in ranked[len(known) :]] == [None, None]


def test_a_line_is_kept_and_read_again(lines: list[IndexLine]) -> None:
    for line in lines:
        assert IndexLine.read(json.loads(json.dumps(asdict(line)))) == line


@every_format
def test_every_format_has_every_run(name: str, index: Index, options: ReportOptions) -> None:
    text = render(name, index, options)
    text.encode("utf-8")
    assert "run-a" in text
    assert "ring" in text
    assert not re.search(r"\b(None|nan|NaN|inf|Infinity|np\.float64)\b", text)
    assert "<script>alert" not in text or name in ("json", "csv")
    assert "<img" not in text or name in ("json", "csv")


def test_an_index_of_nothing_says_so(options: ReportOptions) -> None:
    for name in SEVERAL_RUNS:
        assert render(name, Index([]), options)
    assert "No run here shows a potential gain" in render("html", Index([]), options)


def test_pages_are_linked_where_they_are(index: Index, options: ReportOptions) -> None:
    page = render("html", index, options)
    assert sorted(re.findall(r'href="(run-\d\.html)"', page)) == [
        f"run-{at}.html" for at in range(len(NAMES)) if at != 1
    ]
    assert "](run-1.md)" in render("md", index, options)


def test_json_and_csv_have_the_same_runs(index: Index, options: ReportOptions) -> None:
    content = json.loads(render("json", index, options))
    assert errors_in("index", content) == []
    rows = list(csv.DictReader(io.StringIO(render("csv", index, options))))
    assert [run["id"] for run in content["runs"]] == [line.id for line in index.ranked]
    assert len(rows) == len(NAMES)
    for run, row in zip(content["runs"], rows, strict=True):
        assert run["lost_h"] == (float(row["lost_hours"]) if row["lost_hours"] else None)
        # Spreadsheets take text with such a start for a formula.
        assert not row["run_id"].startswith("=")
    assert content["failed"] == list(index.failed)


@pytest.mark.parametrize("wrong", [{"lost_h": "1 h"}, {"verdict": "slow"}, {"more": 1}])
def test_the_schema_refuses_other_types(
    wrong: dict[str, object], index: Index, options: ReportOptions
) -> None:
    content = json.loads(render("json", index, options))
    content["runs"][0] |= wrong
    assert errors_in("index", content)


def test_the_start_of_a_run_is_shown_and_in_json(
    lines: list[IndexLine], options: ReportOptions
) -> None:
    index = Index([of_day(lines[0], "2026-11-02")])
    assert "2026-11-02 02:00:00" in render("html", index, options)
    assert "2026-11-02 02:00:00" in render("md", index, options)
    assert "2026-11-02T02:00:00.000Z" in render("json", index, options)


def test_a_bound_is_not_shown_as_a_gain(lines: list[IndexLine], options: ReportOptions) -> None:
    bound = replace(lines[0], bound=True, lost_h=20.0, lost_ci95_h=None)
    page = render("md", Index([bound]), options)
    assert "≤ 20.0 h" in page
    assert page.startswith("## Up to 20.0 h of rank time could be saved in 1 run\n")


def of_day(line: IndexLine, day: str, **changes: object) -> IndexLine:
    return replace(line, started_at=f"{day}T02:00:00.000Z", **changes)  # type: ignore[arg-type]


def test_days_and_versions_of_a_job_are_compared(lines: list[IndexLine]) -> None:
    run = replace(lines[0], model="resnet50")
    job_lines = [
        of_day(run, "2026-11-02", versions="horovod 0.28.1, torch 2.9.1"),
        of_day(run, "2026-11-01", versions="horovod 0.28.1, torch 2.8.0"),
        of_day(run, "2026-11-01", versions="horovod 0.28.1, torch 2.8.0", by_cause_ms={"input": 5}),
    ]
    days, versions = trends([*job_lines, *lines[1:]])
    assert days.title == "resnet50 on 4 ranks: steps from day to day"
    assert [bar.label for bar in days.bars] == ["2026-11-01", "2026-11-02"]
    assert [bar.label for bar in versions.bars] == ["torch 2.8.0", "torch 2.9.1"]
    expected = (run.by_cause_ms["input"] + 5) / 2
    assert days.bars[0].segments[0].value == pytest.approx(expected)
    assert "each day's 1 to 2 runs" in days.sentence


def test_commits_distinguish_versions_if_known(lines: list[IndexLine]) -> None:
    job_lines = [of_day(lines[0], "2026-11-01", commit=commit) for commit in ("abc", "def")]
    (versions,) = trends(job_lines)
    assert [bar.label for bar in versions.bars] == ["abc", "def"]


@pytest.mark.parametrize("changes", [{"ranks": 9}, {"job": "other"}, {"synthetic": True}])
def test_different_jobs_are_never_in_one_chart(
    changes: dict[str, object], lines: list[IndexLine]
) -> None:
    job_lines = of_day(lines[0], "2026-11-01"), of_day(lines[0], "2026-11-02", **changes)
    assert trends(job_lines) == []


def test_many_days_are_cut_with_a_note(lines: list[IndexLine]) -> None:
    (chart,) = trends([of_day(lines[0], f"2026-11-{day:02d}") for day in range(1, 21)])
    assert [chart.bars[0].label, chart.bars[-1].label] == ["2026-11-07", "2026-11-20"]
    assert chart.sentence.endswith("6 earlier days left out.")

"""Reports on compared runs, in every format."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from xml.etree import ElementTree

import pytest
from rich.console import Console
from simulator import Job, Noise, simulate
from support.schemas import errors_in
from support.simulated import padded

from stallscope.analysis import Analysis, analyse
from stallscope.analysis.comparison import compare
from stallscope.analysis.regression import regression
from stallscope.charts.charts import Chart, changes_chart, figure_charts, runs_chart
from stallscope.charts.curves import Level, OverRuns, RunDot
from stallscope.charts.plotly_figures import figure
from stallscope.charts.svg import NARROW, WIDE, draw
from stallscope.parsers import read
from stallscope.reports.comparison import Compared, parts
from stallscope.reports.comparison.comparison_document import COLUMNS, json_content
from stallscope.reports.formats.terminal import terminal_summary
from stallscope.reports.report_formats import SEVERAL_RUNS, ReportOptions
from stallscope.reports.report_formats import render as rendered

OPTIONS = ReportOptions(generated_at=datetime(2026, 1, 2, tzinfo=UTC))
JOB = Job(ranks=2, steps=120, noise=Noise(cv=0.05, phi=0))
HOSTILE = '<script>alert(1)</script>|"=1+1\u202e'


def render(name: str, case: Compared) -> str:
    return rendered(name, parts(case), OPTIONS)


@cache
def analysed(
    seed: int = 1, name: str | None = None, optimizer: str = "SGD", **more: Any
) -> Analysis:
    facts = {"model": "made", "optimizer": optimizer}
    job = replace(JOB, seed=seed, run_id=f"run-{seed}", run_name=name, facts=facts, **more)
    return analyse(simulate(job).run)


def printed(name: str) -> Analysis:
    (run,) = read(str(Path(__file__).parents[1] / "parsers" / "printed" / f"{name}.txt"))
    return analyse(run)


def printed_steps(wait_s: float) -> Analysis:
    """Return the analysis of printed steps of 0.2 s that also wait for their data."""
    lines = [
        f"Epoch: [0][{step}/400] Time {0.2 + wait_s + step % 7 / 1000:.4f} (0.0) "
        f"Data {wait_s + step % 3 / 1000:.4f} (0.0)"
        for step in range(400)
    ]
    with TemporaryDirectory() as folder:
        (Path(folder) / "run.log").write_text("\n".join(lines))
        pattern = "Epoch: [{epoch}][{step}/{steps}] Time {seconds} ({}) Data {data} ({})"
        (run,) = read(folder, read_as=f"pattern:{pattern}")
        return analyse(run)


def _counted(seed: int, tokens: int, **more: Any) -> Analysis:
    """Return the analysis of a run that has so many tokens in each batch."""
    run = analysed(seed, **more).run
    return analyse(padded(run, 1 - tokens / 40_000))


def _history(runs: int, **more: Any) -> Compared:
    analyses = [
        analysed(seed, compute_ms=150.0 if seed < 7 else 180.0, **more) for seed in range(runs)
    ]
    return Compared(histories=regression(analyses))


@cache
def compared(case: str) -> Compared:
    pairs = {
        "pair": lambda: (analysed(1), analysed(2, compute_ms=180.0)),
        "everything": lambda: (
            analysed(1),
            analysed(2, input_ms=20.0, compute_ms=168.0, other_ms=20.0),
        ),
        "much slower": lambda: (analysed(1), analysed(2, input_ms=6000.0)),
        "much faster": lambda: (analysed(2, input_ms=6000.0), analysed(1)),
        "equal": lambda: (analysed(1), analysed(2)),
        "same run twice": lambda: (analysed(1), analysed(1)),
        "sizes": lambda: (analysed(1), analysed(2, ranks=4)),
        "batches": lambda: (analysed(1), analysed(2, batch_size=64)),
        "sequences": lambda: (_counted(1, 10_000), _counted(2, 20_000, compute_ms=240.0)),
        "without stages": lambda: (analysed(1), analysed(2, stamps=False)),
        "without steps": lambda: (analysed(1), analysed(2, steps=0)),
        "missing ranks": lambda: (analysed(1), analysed(2, lost_ranks=(1,))),
        "epochs only": lambda: (printed("tf-2.15-verbose-2"), printed("keras-3.15-verbose-2")),
        "printed steps": lambda: (printed_steps(0.02), printed_steps(0.1)),
        "few steps": lambda: (analysed(1), analysed(2, steps=6)),
        "hostile pair": lambda: (analysed(1, HOSTILE), analysed(2, HOSTILE, optimizer=HOSTILE)),
    }
    if case in pairs:
        return Compared(pair=compare(*pairs[case]()))
    return {
        "history": lambda: _history(12),
        "few runs": lambda: _history(3),
        "longer sequences since": lambda: Compared(
            histories=regression(
                _counted(seed, 10_000 if seed < 7 else 20_000) for seed in range(12)
            )
        ),
        "one run": lambda: _history(1),
        "hostile history": lambda: _history(12, name=HOSTILE),
        "gaps": lambda: Compared(
            histories=regression(analysed(seed, stamps=seed != 2) for seed in range(7))
        ),
        "nothing": lambda: Compared(histories=regression([analysed(1, steps=0)])),
    }[case]()


CASES = (
    *(
        "pair",
        "everything",
        "much slower",
        "much faster",
        "equal",
        "same run twice",
        "sizes",
        "batches",
        "sequences",
        "without stages",
        "without steps",
    ),
    *(
        "missing ranks",
        "epochs only",
        "printed steps",
        "few steps",
        "hostile pair",
        "history",
        "few runs",
        "one run",
    ),
    *("hostile history", "gaps", "nothing", "longer sequences since"),
)


def shown(case: str) -> str:
    console = Console(width=80, file=io.StringIO(), color_system=None)
    console.print(terminal_summary(parts(compared(case)).document("terminal")))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.broad
@pytest.mark.parametrize("case", CASES)
def test_every_document_is_valid(case: str) -> None:
    text = render("json", compared(case))
    assert errors_in("compare", json.loads(text)) == []


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", SEVERAL_RUNS)
def test_every_comparison_can_be_reported_in_every_format(name: str, case: str) -> None:
    text = render(name, compared(case))
    assert "nan" not in re.findall(r"\b\w+\b", text)
    assert "None" not in re.findall(r"\b\w+\b", text)
    assert "<script" not in text.replace("\\u003c", "<") or name in ("json", "csv")
    assert "\u202e" not in text or name == "json"


@pytest.mark.parametrize("case", CASES)
def test_the_summary_fits_80_columns(case: str) -> None:
    lines = shown(case).splitlines()
    assert max(map(len, lines), default=0) <= 80
    assert "\u202e" not in "".join(lines)


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        ("pair", r"B's steps are 1\d\.\d% longer"),
        ("pair", r"Throughput of B over A's: 0\.8\d+× \(95% interval"),
        ("pair", r"Most of it is compute"),
        ("everything", r"The largest part of it is"),
        (
            "much slower",
            r"A's steps are 9\d\.\d% shorter .* takes 9\d\.\d% less time in A \(95% int",
        ),
        (
            "much faster",
            r"B's steps are 9\d\.\d% shorter .* takes 9\d\.\d% less time in B \(95% int",
        ),
        ("equal", r"No difference beyond noise"),
        ("equal", r"recorded the same"),
        ("same run twice", r"A and B are one run: nothing can differ"),
        ("sizes", r"A ran on 2 ranks and B on 4"),
        (
            "batches",
            r"B is 2\.\d+× as fast per sample .* with 32 samples per rank, .* with 64 samples\. "
            r"Throughput per sample of B over A's: 2\.\d+× \(95% int.* What changed per sample",
        ),
        (
            "sequences",
            r"B is 1\.\d+× as fast per token A step takes 1\d\d(\.\d)? ms in A, with 10,000",
        ),
        ("sequences", r"The largest part of the difference is|Most of the difference is compute"),
        ("longer sequences since", r"all times are for 10,000 tokens on each rank, as in run-0"),
        ("longer sequences since", r"For as many tokens steps are 4\d\.\d% shorter since run-7"),
        ("longer sequences since", r"21\d,\d00 ± [\d,]*\d00 tokens/s"),
        ("without stages", r"Only whole steps are compared\. B: The stages"),
        ("without steps", r"Not comparable"),
        ("missing ranks", r"B: 1 of 2 ranks left no log"),
        ("few steps", r"Too few steps to tell"),
        ("epochs only", r"A's logs record epochs but no steps; mean epoch: 679\.5 ± 0\.5 ms"),
        ("printed steps", r"Only whole steps are compared\. A's are"),
        ("printed steps", r"Most of it is input\."),
        ("printed steps", r"of it: waiting for data"),
        ("printed steps", r"record neither settings nor versions"),
        ("history", r"Steps are 1\d\.\d% longer since run-7"),
        ("few runs", r"Too few runs to tell"),
    ],
)
def test_the_summary_shows_what_is_known(case: str, expected: str) -> None:
    assert re.search(expected, " ".join(shown(case).split()))


def test_the_json_of_a_pair_has_its_figures() -> None:
    pair = json_content(compared("pair"))["pair"]
    assert pair["step"]["more_than_noise"] is True
    by = sum(entry["by_ms"]["value"] for entry in pair["ledger"])
    assert by == pytest.approx(pair["step"]["by_ms"]["value"])
    assert pair["speedup"]["ci95"][0] < pair["speedup"]["value"] < pair["speedup"]["ci95"][1]
    assert [run["id"] for run in pair["runs"]] == ["run-1", "run-2"]


def test_the_json_and_the_csv_of_different_work_have_both_figures() -> None:
    pair = json_content(compared("sequences"))["pair"]
    work = pair["same_work"]
    assert (work["unit"], work["more_than_noise"]) == ("token", True)
    assert work["first_per_step"]["value"] == pytest.approx(2 * 10_000)
    rates = [work[f"{run}_per_second"]["value"] for run in ("first", "second")]
    assert work["speedup"]["value"] == pytest.approx(rates[1] / rates[0])
    assert work["step"]["second_ms"]["value"] == pytest.approx(
        pair["step"]["second_ms"]["value"] / 2
    )
    by = sum(change["by_ms"]["value"] for change in work["by_cause"])
    assert by == pytest.approx(work["step"]["by_ms"]["value"])
    rows = csv.DictReader(io.StringIO(render("csv", compared("sequences"))))
    in_tokens = [row for row in rows if row["figure"] == "tokens_per_second"]
    assert [float(row["value"]) for row in in_tokens] == pytest.approx(rates)
    note = "B's times are for 10,000 tokens, as a rank's step in A has."
    assert note in render("md", compared("sequences"))
    assert json_content(compared("pair"))["pair"]["same_work"] is None


def test_the_json_of_a_history_names_the_run_of_a_change() -> None:
    (history,) = json_content(compared("history"))["histories"]
    step = next(figure for figure in history["figures"] if figure["name"] == "step")
    (change,) = step["changes"]
    assert change["run_id"] == "run-7"
    assert history["runs"][change["run"]]["id"] == "run-7"
    assert len(step["values"]) == len(history["runs"]) == 12


def test_the_csv_has_a_row_per_run_and_figure() -> None:
    rows = list(csv.DictReader(io.StringIO(render("csv", compared("history")))))
    assert tuple(rows[0]) == COLUMNS
    assert len(rows) == 12 * 7
    changed = {(row["figure"], row["run_id"]) for row in rows if row["found"]}
    assert ("step", "run-7") in changed
    pair = list(csv.DictReader(io.StringIO(render("csv", compared("pair")))))
    assert [row["number"] for row in pair] == ["1", "2"] * 6


@pytest.mark.parametrize("case", ["pair", "history"])
def test_the_page_is_self_contained_and_has_charts(case: str) -> None:
    page = render("html", compared(case))
    assert page.count("<figure") >= 2
    assert not re.search(r"(src|href)=\"(?!data:|#)", page)
    assert page.count("<h1") == 1


PICTURES: tuple[Chart, ...] = (
    OverRuns(
        HOSTILE,
        "A sentence.",
        "ms",
        (RunDot(HOSTILE, None), *[RunDot("b", None)] * 60),
        (Level(1, 3, 1.0, 2.0),),
        ((60, HOSTILE), (2, "+3%")),
    ),
    OverRuns("Nothing", "Nothing.", "ms", (), ()),
)


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_charts_stay_inside_and_escape_text_from_logs(width: int) -> None:
    (history,) = compared("history").histories
    charts = [*figure_charts(history).values(), runs_chart(history)]
    for chart in (*PICTURES, *charts):
        assert chart is not None
        svg = ElementTree.fromstring(draw(chart, "key", width))
        assert not list(svg.iter("script"))
        for text in svg.iter("{http://www.w3.org/2000/svg}text"):
            assert 0 <= float(text.attrib["x"]) <= width


def test_the_chart_of_a_history_marks_the_run_of_a_change() -> None:
    (history,) = compared("history").histories
    step = figure_charts(history)["step"]
    ((run, label),) = step.marks
    assert run == 8
    assert re.fullmatch(r"\+1\d\.\d%", label)
    assert [(level.first, level.last) for level in step.levels] == [(1, 7), (8, 12)]
    drawn = figure(step, dark=True)
    assert len(drawn.data[0].x) == 12
    assert any("%" in (note.text or "") for note in drawn.layout.annotations)


def test_without_stages_there_is_no_chart_of_them() -> None:
    pair = compared("without stages").pair
    assert pair is not None
    assert changes_chart(pair) is None
    assert "<figure" not in render("html", compared("without stages"))

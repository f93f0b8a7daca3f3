"""Reports on scaling, in every format."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from rich.console import Console
from simulator import Job, Noise, Ring, simulate
from support.epoch_logs import EpochJob, write_keras
from support.schemas import errors_in

from stallscope.analysis import ENTRIES, Analysis, analyse
from stallscope.analysis.scaling import ScalingSeries, scaling
from stallscope.analysis.scaling.projection import CURVES
from stallscope.charts.charts import Chart
from stallscope.charts.plotly_figures import figure
from stallscope.charts.scaling_curves import efficiency_chart, rate_chart, steps_chart
from stallscope.charts.svg import NARROW, WIDE, draw
from stallscope.parsers import read
from stallscope.reports.formats.terminal import terminal_summary
from stallscope.reports.report_formats import SEVERAL_RUNS, ReportOptions
from stallscope.reports.report_formats import render as rendered
from stallscope.reports.scaling import parts
from stallscope.reports.scaling.scaling_contents import headline, lost_table, percentage
from stallscope.reports.scaling.scaling_document import COLUMNS, json_content
from stallscope.text.vocabulary import TITLES

OPTIONS = ReportOptions(generated_at=datetime(2026, 1, 2, tzinfo=UTC))
RING = Ring(bytes=20_000_000, bandwidth_gb_s=1.0, latency_us=500.0)
JOB = Job(steps=120, communication=RING, noise=Noise(cv=0.05))
HOSTILE = '<script>alert(1)</script>|"=1+1'


def render(name: str, series: list[ScalingSeries]) -> str:
    return rendered(name, parts(series), OPTIONS)


@cache
def analysed(ranks: int, seed: int = 1, **more: Any) -> Analysis:
    job = replace(JOB, ranks=ranks, seed=seed, run_id=f"{ranks}-{seed}", **more)
    return analyse(simulate(job).run)


def series_of(case: str) -> list[ScalingSeries]:
    runs = {
        "from one rank on": [analysed(ranks) for ranks in (1, 2, 4)],
        "repeated": [analysed(ranks, seed) for ranks in (1, 4) for seed in (1, 2)],
        "without one rank": [analysed(ranks) for ranks in (2, 4)],
        "one size": [analysed(4)],
        "without stages": [analysed(ranks, stamps=False) for ranks in (1, 2)],
        "without batch sizes": [
            replace(analysed(ranks), samples_per_second=None) for ranks in (1, 2)
        ],
        "hostile": [_named(analysed(ranks), HOSTILE) for ranks in (1, 2)],
        "known by epochs": [_of_epochs(ranks) for ranks in (1, 2)],
        "two jobs": [analysed(ranks, synthetic=data) for ranks in (1, 2) for data in (False, True)],
    }
    return scaling(runs[case])


@cache
def _of_epochs(ranks: int) -> Analysis:
    """Make Keras's output of forty epochs, without steps."""
    with TemporaryDirectory() as folder:
        path = write_keras(Path(folder), EpochJob(ranks, 50.0))
        return analyse(read(str(path))[0])


def _named(analysis: Analysis, model: str) -> Analysis:
    logs = tuple(replace(log, facts={**log.facts, "model": model}) for log in analysis.run.logs)
    return replace(analysis, run=replace(analysis.run, logs=logs))


CASES = (
    "from one rank on",
    "repeated",
    "without one rank",
    "one size",
    "without stages",
    "without batch sizes",
    "hostile",
    "known by epochs",
    "two jobs",
)


@pytest.mark.parametrize("case", CASES)
def test_every_document_is_valid(case: str) -> None:
    text = render("json", series_of(case))
    assert errors_in("scaling", json.loads(text)) == []


def test_the_keys_that_scripts_rely_on_exist() -> None:
    document = json_content(series_of("from one rank on"))
    assert document["schema_version"] == 1
    (series,) = document["series"]
    assert [point["ranks"] for point in series["points"]] == [1, 2, 4]
    for point in series["points"]:
        assert sum(point["lost"].values()) == pytest.approx(1 - point["efficiency"])
        assert list(point["lost"]) == list(ENTRIES)
        assert point["samples_per_second_job"] < point["samples_per_second"]
        assert point["efficiency_job"] > 0
        assert point["runs"] == [f"{point['ranks']}-1"]
    assert [point["ranks"] for point in series["projection"]] == [8, 16, 32]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", SEVERAL_RUNS)
def test_every_format_shows_the_efficiency(name: str, case: str) -> None:
    text = render(name, series_of(case))
    assert len(text) > 200
    assert "nan" not in text.lower().replace("resnant", "")
    if name == "html":
        assert "<script" not in text


def test_the_page_is_self_contained_and_escaped() -> None:
    text = render("html", series_of("hostile"))
    assert "&lt;script&gt;alert(1)" in text
    assert len(text) < 200_000
    assert re.findall(r'(?:src|href)="(?!#|data:)', text) == []
    for curve in CURVES:
        assert curve.name in text


def test_markdown_and_csv_escape_hostile_names() -> None:
    series = series_of("hostile")
    assert "<script>" not in render("md", series)
    series[0] = replace(series[0], name="=1+1")
    rows = list(csv.DictReader(io.StringIO(render("csv", series))))
    assert {row["series"] for row in rows} == {"'=1+1"}


def test_csv_has_a_row_per_size() -> None:
    rows = list(csv.DictReader(io.StringIO(render("csv", series_of("from one rank on")))))
    assert tuple(rows[0]) == COLUMNS
    assert [row["ranks"] for row in rows] == ["1", "2", "4", "8", "16", "32"]
    assert [row["projected"] for row in rows] == ["False"] * 3 + ["True"] * 3
    lost = sum(float(rows[2][f"lost_{name}"]) for name in ENTRIES)
    assert lost == pytest.approx(1 - float(rows[2]["efficiency"]))
    assert rows[5]["lost_input"] == ""


@pytest.mark.parametrize("case", CASES)
def test_the_summary_fits_a_terminal(case: str) -> None:
    console = Console(file=io.StringIO(), width=80, color_system=None)
    console.print(terminal_summary(parts(series_of(case)).document("terminal")))
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert max(map(len, lines)) <= 80
    text = "\n".join(lines)
    assert "efficiency" in text
    if case == "from one rank on":
        assert "Where efficiency is lost" in text
        assert "8*" in text
        assert "run each twice" in " ".join(text.split())
    if case == "repeated":
        assert "between sizes by more than between repeats" in " ".join(text.split())


@pytest.mark.parametrize("case", CASES)
def test_losses_add_up_as_printed_and_match_the_headline(case: str) -> None:
    for series in series_of(case):
        table = lost_table(series)
        for row in () if table is None else table.rows:
            lost, *parts = (
                Decimal(cell.partition(" ")[0].strip("%").replace("−", "-")) for cell in row[1:]
            )
            assert sum(parts) == lost, row
            (entry,) = (entry for entry in series.points if str(entry.point.ranks) == row[0])
            efficiency = Decimal(percentage(entry.efficiency).partition(" ")[0].strip("%"))
            assert abs(100 - efficiency - lost) <= Decimal(1).scaleb(lost.as_tuple().exponent)
        if table is not None:
            text, cells = headline(series), dict(zip(table.columns, table.rows[-1], strict=True))
            match = re.search(r"most is lost to (.+) \((.+)%\)", text)
            assert match is not None
            printed = cells[match[1].capitalize()]
            assert printed.startswith((f"{match[2]}%", f"{match[2]} ± ")), (text, printed)


def test_the_headline_names_the_largest_loss() -> None:
    text = render("md", series_of("from one rank on"))
    assert re.search(
        r"efficiency on 4 ranks; most is lost to (exposed allreduce|waiting for slow ranks)", text
    )


@pytest.mark.parametrize("case", CASES)
def test_charts_are_drawn_both_ways(case: str) -> None:
    for series in series_of(case):
        charts: list[Chart | None] = [
            rate_chart(series),
            efficiency_chart(series),
            steps_chart(series),
        ]
        assert (charts[2] is None) == (case in ("without stages", "known by epochs"))
        for chart in (drawable for drawable in charts if drawable is not None):
            for width in (WIDE, NARROW):
                drawn = draw(chart, "key", width)
                assert drawn.startswith("<svg")
                assert "nan" not in drawn
                assert "<script" not in drawn
            for dark in (False, True):
                assert len(figure(chart, dark=dark).data) > 0


def test_bars_are_labelled_in_place() -> None:
    (series,) = series_of("from one rank on")
    drawn = draw(rate_chart(series), "key", WIDE)
    assert "2 ranks, steady steps: " in drawn
    assert "1 rank, whole job: " in drawn
    assert "32 ranks, projected: " in drawn
    assert drawn.count('class="ideal"') == 3
    # The legend's sample has the colour of the projected bars.
    assert drawn.count("fill-steps paler-2") == 3 + 1
    lines = draw(efficiency_chart(series), "key", WIDE)
    for curve in CURVES:
        assert f">{curve.name}</text>" in lines
    steps = steps_chart(series)
    assert steps is not None
    assert TITLES["allreduce"] in draw(steps, "key", WIDE)


@pytest.mark.parametrize("report_format", ["html", "md"])
def test_errors_of_projections_are_shown_next_to_them(report_format: str) -> None:
    text = render(report_format, series_of("from one rank on"))
    assert "from two or more sizes on several ranks, on published curves: median 10.4%" in text
    text = render(report_format, series_of("hostile"))
    assert "from one size on several ranks, on published curves: median 24.7%" in text
    text = render(report_format, series_of("without stages"))
    assert "on published curves" not in text


def test_figures_that_epochs_lack_are_null_or_empty_and_never_zero() -> None:
    series = series_of("known by epochs")
    (json_series,) = json_content(series)["series"]
    assert (json_series["unit"], json_series["projection"]) == ("epochs", [])
    two = json_series["points"][1]
    assert two["efficiency"] == pytest.approx(0.5, abs=0.01)
    assert two["efficiency_job"] == pytest.approx(0.5, abs=0.01)
    assert two["samples_per_second"] == pytest.approx(1 / 50, rel=0.01)
    assert (two["lost"], two["lost_ci95"]) == (None, None)
    rows = list(csv.DictReader(io.StringIO(render("csv", series))))
    assert [row["lost_input"] for row in rows] == ["", ""]
    for name in ("md", "html"):
        text = render(name, series)
        assert "epochs/h" in text
        assert "what Keras printed (epochs, to" in text
        assert "what their times were rounded to" in text
        assert "real data" not in text

"""A measured loader is compared with what training needs, in reports and on the page."""

from __future__ import annotations

from pathlib import Path

import pytest
from simulator import Job, simulate, write_logs
from support.input_times import write_measured

from stallscope.analysis import Analysis, analyse
from stallscope.dashboard import RunStore
from stallscope.dashboard.app import view_at
from stallscope.parsers import read
from stallscope.reports.run.network_tables import rates_table, stages_table
from stallscope.reports.write import write_reports

# 32 samples in 100 ms on a rank; 30 of them are input.
JOB = Job(ranks=2, steps=200, input_ms=30, compute_ms=60, other_ms=2)


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Analysis:
    folder = tmp_path_factory.mktemp("measured")
    write_logs(simulate(JOB), folder)
    for rank, ms in enumerate((8.0, 160.0)):
        stages = [
            {"kind": "read", "name": "TFRecord", "ms": ms * 0.25, "ci95_ms": None},
            {"kind": "augment", "name": "Map(<b>flip</b>)", "ms": ms * 0.75, "ci95_ms": None},
        ]
        sure = [ms * 0.95, ms * 1.05]
        write_measured(folder, rank=rank, size=2, ms=ms, ci95_ms=sure, stages=stages)
    (run,) = read(str(folder))
    return analyse(run)


def test_the_slowest_loader_is_compared_with_training(measured: Analysis) -> None:
    table = rates_table(measured)
    assert table is not None
    alone, synthetic, real = table.rows
    assert alone == (
        "Loader alone (rank 1, the slowest)",
        "200 samples/s",
        "190 to 211 samples/s",
    )
    assert synthetic[1] == "not measured"
    assert real[1].endswith(" samples/s")
    assert "Alone it is too slow already." in table.note


def test_its_stages_have_their_share(measured: Analysis) -> None:
    table = stages_table(measured)
    assert table is not None
    assert table.rows == (
        ("read", "TFRecord", "40.0", "25.0%"),
        ("augment", "Map(<b>flip</b>)", "120", "75.0%"),
    )


def test_runs_without_a_measurement_have_neither_table() -> None:
    analysis = analyse(simulate(JOB).run)
    assert rates_table(analysis) is None
    assert stages_table(analysis) is None


def test_reports_and_the_page_show_them(measured: Analysis, tmp_path: Path) -> None:
    html, markdown = write_reports([measured], ["html", "md"], tmp_path, force=False)
    assert "The loader&#39;s stages" in html.read_text()
    assert "<b>flip</b>" not in html.read_text()
    assert "### The loader's stages" in markdown.read_text()
    run = measured.run
    page = str(view_at(RunStore([run]), f"/run/{run.id}/baseline", "").content)
    assert "Where input time goes: three rates" in page
    assert "measure_input would tell" not in page

"""Machine series are shown with the verdict, as evidence and chart, and do not change it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from support.reports import rendered
from support.schemas import errors_in

from stallscope.analysis import Analysis, analyse
from stallscope.batch.anonymous import anonymous
from stallscope.notebook import Shown
from stallscope.reports.report_formats import ReportOptions
from stallscope.reports.run.json_content import json_content
from stallscope.run import Series

from .cases import IMAGE, SCRIPT

S = 10**9
SAID = "GPU utilization of 2 GPUs was "


@pytest.fixture
def measured(case: Callable[[str], Analysis]) -> Analysis:
    """Make two GPUs of two ranks, half of the time at 40 % and half at 60 %."""
    run = case("two ranks").run
    assert run.started_at is not None
    walls = round(run.started_at.timestamp() * S) + (S // 10) * np.arange(1, 60, dtype=np.int64)
    values = np.where(np.arange(59) % 2, 40.0, 60.0)
    gpus = [
        Series(f"gpu_{n}_utilization", "%", "node.secret", None, "/vault/m.json", walls, values)
        for n in range(2)
    ]
    hostile = Series(f"{SCRIPT}_x", "", IMAGE, None, IMAGE, walls, values)
    return analyse(replace(run, series=(*gpus, hostile)))


def test_the_verdict_shows_them_with_its_evidence(
    measured: Analysis, options: ReportOptions
) -> None:
    page, text = (rendered(name, measured, options) for name in ("html", "md"))
    for shown in (page, text):
        assert SAID in shown
        assert "% on average over the steady steps: " in shown
        assert "values from 40.0% to 60.0%. The verdict does not rest on it." in shown


def test_the_chart_follows_that_of_step_times(measured: Analysis, options: ReportOptions) -> None:
    page = rendered("html", measured, options)
    titles = ["Step time over the run</h2>", "GPU utilization over the run</h2>"]
    assert page.index(titles[0]) < page.index(titles[1])
    assert len(Shown(measured).figures()) == len(Shown(replace_series(measured)).figures()) + 1


def replace_series(analysis: Analysis) -> Analysis:
    return analyse(replace(analysis.run, series=()))


def test_without_machine_series_there_is_no_section(
    measured: Analysis, options: ReportOptions
) -> None:
    bare = replace_series(measured)
    for name in ("html", "md"):
        assert "utilization" not in rendered(name, bare, options)
    assert json_content(bare)["machines"] == []


def test_names_stay_text(measured: Analysis, options: ReportOptions) -> None:
    only = replace(measured.run, series=(replace(measured.run.series[2], unit="%"),))
    for name in ("html", "md"):
        page = rendered(name, analyse(only), options)
        assert SCRIPT not in page
        assert "<img" not in page


def test_programs_get_each_series(measured: Analysis) -> None:
    document = json_content(measured)
    assert errors_in("report", document) == []
    first, _, last = document["machines"]
    assert first | {"whole": None, "steady": None} == {
        "name": "gpu_0_utilization",
        "unit": "%",
        "node": "node.secret",
        "rank": None,
        "log": "/vault/m.json",
        "whole": None,
        "steady": None,
    }
    assert first["whole"] == {"mean": pytest.approx(50.17, abs=0.01)} | {
        "low": 40.0,
        "high": 60.0,
        "values": 59,
    }
    assert 0 < first["steady"]["values"] < 59
    assert last["name"] == f"{SCRIPT}_x"


def test_anonymous_reports_name_no_node(measured: Analysis, options: ReportOptions) -> None:
    analysis = analyse(anonymous(measured.run))
    texts = [
        rendered("html", analysis, options),
        rendered("md", analysis, options),
        json.dumps(json_content(analysis)),
    ]
    for text in texts:
        assert "secret" not in text
        assert "vault" not in text
    assert {series.node for series in analysis.run.series} == {"other-host-1", "other-host-2"}

"""The numbers behind a chart: units in the header, nothing where nothing was measured."""

from __future__ import annotations

import csv
import io
import math

import numpy as np
import pytest

from stallscope.arrays.stats import Mean
from stallscope.charts.chart_kinds import Bar, Segment, StackedArea, StackedBars, Waterfall
from stallscope.charts.charts import Chart
from stallscope.charts.compared_bars import ComparedBars
from stallscope.charts.curves import EfficiencyLine, EfficiencyLines
from stallscope.charts.rows import GainBar, GainBars
from stallscope.charts.scaling_curves import RateBar, RateBars
from stallscope.dashboard import RunStore
from stallscope.dashboard.app import view_at
from stallscope.dashboard.components.chart_csv import chart_csv
from stallscope.dashboard.components.notices import TABS
from stallscope.formatting.sums import SumColumn

from .content import of_type


@pytest.mark.parametrize("page", [*TABS.values(), "step/20"])
def test_every_picture_of_every_page_has_its_numbers(store: RunStore, page: str) -> None:
    content = view_at(store, f"/run/slow/{page}".rstrip("/"), "?baseline=synthetic").content
    pictures = [
        component
        for component in of_type(content, "Store")
        if isinstance(component.id, dict) and component.id["type"] == "chart-figure"
    ]
    graphs = of_type(content, "Graph")
    assert len(pictures) == len(graphs)
    for picture in pictures:
        head = picture.data["csv"]
        assert ", ms" in str(head) or ", s" in str(head), picture.id


def rows(chart: Chart) -> list[list[str]]:
    text = chart_csv(chart)
    assert isinstance(text, str)
    return list(csv.reader(io.StringIO(text, newline="")))


def test_bars_of_different_segments_leave_cells_empty() -> None:
    bars = (
        Bar("this run", (Segment("input", 1.25, (1.0, 1.5)), Segment("compute", 20.0))),
        Bar("baseline", (Segment("compute", 19.0),)),
    )
    head, this_run, baseline = rows(StackedBars("Title", "", "ms", bars))
    assert head == [
        "bar",
        "Input, ms",
        "Input 95% low, ms",
        "Input 95% high, ms",
        "Compute, ms",
        "Compute 95% low, ms",
        "Compute 95% high, ms",
        "Total, ms",
    ]
    assert this_run == ["this run", "1.25", "1.0", "1.5", "20.0", "", "", "21.25"]
    assert baseline == ["baseline", "", "", "", "19.0", "", "", "19.0"]


def test_what_was_not_measured_is_empty() -> None:
    layers = (("input", np.array([1.0, math.nan])), ("compute", np.array([2.0, 3.0])))
    chart = StackedArea("Title", "", "ms", "step", np.array([3.0, 5.0]), layers)
    assert rows(chart)[1:] == [["3", "1.0", "2.0"], ["5", "", "3.0"]]
    compared = ComparedBars("Title", "", "ms", ("a", "b"), (("input", (Mean(1.0, None), None)),))
    assert rows(compared)[1] == ["Input", "1.0", "", "", "", "", ""]


def test_a_waterfall_tells_totals_from_changes() -> None:
    changes = (Segment("input", -2.0, (-3.0, -1.0)),)
    chart = Waterfall(
        "Title",
        "",
        "ms",
        ("baseline", 40.0),
        changes,
        ("this run", 38.0),
        SumColumn.of([change.value for change in changes], 38.0),
        40.0,
    )
    assert rows(chart) == [
        ["entry", "Total, ms", "Adds, ms", "Adds 95% low, ms", "Adds 95% high, ms"],
        ["baseline", "40.0", "", "", ""],
        ["Input", "", "-2.0", "-3.0", "-1.0"],
        ["this run", "38.0", "", "", ""],
    ]


def test_gains_say_what_is_a_bound() -> None:
    bar = GainBar("If allreduce cost nothing", "allreduce", Mean(2.0, (1.0, 3.0)), "1.1×", "", True)
    _, row = rows(GainBars("Title", "", "ms", (bar,)))
    assert row == ["If allreduce cost nothing", "yes", "2.0", "1.0", "3.0", "1.1×"]


def test_rates_and_efficiencies_say_what_is_projected() -> None:
    measured = RateBar(1, Mean(10.0, (9.0, 11.0)), None, 10.0)
    projected = RateBar(2, Mean(1.0, None), None, None, projected=True)
    bars = (measured, projected)
    _, measured_row, projected_row = rows(RateBars("Title", "", "samples/s", bars))
    assert measured_row == ["1", "no", "10.0", "9.0", "11.0", "", "", "", "10.0"]
    assert projected_row == ["2", "yes", "1.0", "", "", "", "", "", ""]
    lines = (EfficiencyLine("this job", ((2, Mean(0.9, (0.8, 1.0))),)),)
    assert rows(EfficiencyLines("Title", "", lines))[1] == ["this job", "2", "0.9", "0.8", "1.0"]


def test_text_from_logs_is_no_formula() -> None:
    bars = (Bar("=HYPERLINK(1)", (Segment("input", 1.0),)),)
    assert rows(StackedBars("Title", "", "ms", bars))[1][0] == "'=HYPERLINK(1)"

"""Every mark of a chart has its explanation, in both drawings."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from simulator import Fault, Job, simulate

from stallscope.analysis import Analysis, analyse
from stallscope.charts.chart_kinds import Bar, Segment, StackedBars
from stallscope.charts.charts import named_charts
from stallscope.charts.marks import legend_of, marks_of
from stallscope.charts.plotly_figures import figure
from stallscope.charts.step_time import step_time_chart
from stallscope.charts.svg import draw


@cache
def analysis(steps: int = 900) -> Analysis:
    slow = Fault("input", 30.0, ranks=(1,))
    job = Job(ranks=4, steps=steps, epochs=3, validation_ms=400, faults=(slow,))
    baseline = simulate(job.baseline()).run
    return analyse(simulate(job).run, baseline=baseline)


def test_all_charts_explain_their_marks_in_their_legends() -> None:
    charts = named_charts(analysis())
    shapes = {name: [shape for shape, _ in marks_of(chart)] for name, chart in charts.items()}
    assert shapes["ranks"] == ["band"]
    assert shapes["steps"] == ["dashes", "line", "pause"]
    assert shapes["gains"] == ["pale", "whisker"]
    assert "whisker" in shapes["baseline"]
    for chart in charts.values():
        drawn = draw(chart, "key")
        assert all(f">{label}</text>" in drawn for _, label in marks_of(chart))


def test_windows_have_their_median_and_percentile() -> None:
    chart = step_time_chart(analysis())
    assert chart is not None
    windows, steady = chart.windows, analysis().steady
    assert windows is not None
    assert steady is not None
    assert windows.length >= 20
    last = steady.total[-windows.length :] / 1e6
    assert windows.median[-1] == pytest.approx(np.median(last))
    assert windows.p95[-1] == pytest.approx(np.percentile(last, 95))
    names = [trace.name for trace in figure(chart, dark=False).data]
    assert {"median", "95th percentile"} <= {*names}


def test_few_steps_have_no_windows() -> None:
    chart = step_time_chart(analysis(50))
    assert chart is not None
    assert chart.windows is None
    assert [shape for shape, _ in marks_of(chart)] == ["pause"]


def test_stages_keep_their_order_where_a_bar_lacks_one() -> None:
    first = Bar("A", (Segment("input", 1.0), Segment("compute", 2.0), Segment("allreduce", 3.0)))
    waiting = (Segment("input", 1.0), Segment("input_waiting", 2.0), Segment("allreduce", 3.0))
    chart = StackedBars("Title", "", "ms", (first, Bar("B", waiting)))
    order = ["input", "input_waiting", "compute", "allreduce"]
    assert [name for name, _ in legend_of(chart)] == order
    traces = [trace.name for trace in figure(chart, dark=False).data]
    assert traces == ["Input", "Waiting for slow input", "Compute", "Exposed allreduce"]

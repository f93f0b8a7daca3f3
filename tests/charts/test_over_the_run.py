"""The chart of step time over the run, with its events."""

from __future__ import annotations

from functools import cache

import pytest
from simulator import Between, Fault, Job, simulate

from stallscope.analysis import Analysis, analyse
from stallscope.charts.chart_kinds import StackedArea
from stallscope.charts.plotly_figures import figure
from stallscope.charts.step_time import step_time_chart
from stallscope.charts.svg import NARROW, WIDE, draw


@cache
def analysis() -> Analysis:
    late = Fault("compute", 40, ranks=(3,), when=Between(450, 900))
    job = Job(ranks=8, steps=900, epochs=3, validation_ms=400, checkpoint_ms=150, faults=(late,))
    return analyse(simulate(job).run)


def chart() -> StackedArea:
    step_times = step_time_chart(analysis())
    assert step_times is not None
    return step_times


def test_changes_name_the_stage_and_the_ranks() -> None:
    ((at, label),) = chart().changes
    assert at == pytest.approx(450, abs=2)
    assert label.endswith("ms waiting for rank 3")
    assert label.startswith("+3")


def test_pauses_are_before_the_steps_that_they_delayed() -> None:
    assert [at for at, _ in chart().pauses] == [300.0, 600.0]
    assert all("validation" in label and "checkpoints" in label for _, label in chart().pauses)


def test_rates_are_those_of_the_run() -> None:
    rates, overall = chart().rates, analysis().samples_per_second
    assert rates is not None
    assert overall is not None
    assert rates[:100].mean() > overall > rates[-100:].mean()


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_the_chart_has_them_all(width: int) -> None:
    drawn = draw(chart(), "key", width)
    assert drawn.count('class="change"') == 1
    assert drawn.count('class="pause"') == 2
    assert "ms waiting for rank 3</text>" in drawn
    assert "before step 300: validation" in drawn


@pytest.mark.parametrize("dark", [False, True])
def test_the_figure_has_them_all(dark: bool) -> None:
    drawn = figure(chart(), dark=dark)
    assert any("ms waiting for rank 3" in note.text for note in drawn.layout.annotations)
    pauses = [trace for trace in drawn.data if trace.mode == "markers"]
    assert [list(trace.x) for trace in pauses] == [[300.0, 600.0]]
    rates = [trace for trace in drawn.data if trace.hovertemplate.startswith("Throughput")]
    assert [len(trace.customdata) for trace in rates] == [len(chart().x)]

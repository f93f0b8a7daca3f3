"""Machine series are grouped into quantities, drawn in columns, and described in words."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.step_logs import Job, run_of_job

from stallscope.analysis import analyse
from stallscope.analysis.views.machine_series import MachineQuantity, between, over, quantities
from stallscope.charts.step_time import machine_chart
from stallscope.run import Run, Series
from stallscope.text.machine_words import evidence, label, of_whom, reading, scale, title

S = 10**9


def series(name: str, unit: str, *values: float, node: str | None = None, begin: int = 0) -> Series:
    """Return a value every second."""
    walls = begin + S * np.arange(len(values), dtype=np.int64)
    return Series(
        name, unit, node, None, "metrics.mlflow.json", walls, np.array(values, np.float64)
    )


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder: Path = tmp_path_factory.mktemp("logs")
    return run_of_job(folder, Job(ranks=2, steps=300, tracing_ms=3000.0))


def began(run: Run) -> int:
    assert run.started_at is not None
    return round(run.started_at.timestamp() * S)


GPUS = [
    series(f"gpu_{gpu}_utilization", "%", 10.0, 20.0, node=f"node_{node}")
    for node in range(2)
    for gpu in range(2)
]


def test_important_quantities_come_first_and_totals_before_devices() -> None:
    all_series = (
        series("disk_usage", "MB", 5.0),
        series("system_memory_usage", "MB", 5.0),
        series("cpu_utilization", "%", 5.0),
        *GPUS,
    )
    ordered = quantities(run_of_series(all_series))
    assert [(quantity.name, len(quantity.series)) for quantity in ordered] == [
        ("gpu_utilization", 4),
        ("cpu_utilization", 1),
        ("disk_usage", 1),
        ("system_memory_usage", 1),
        *((f"gpu_{gpu}_utilization", 1) for _ in range(2) for gpu in range(2)),
    ]
    assert len({quantity.key for quantity in ordered}) == len(ordered)
    assert ordered[0].key == "gpu_utilization/%"
    assert ordered[4].key == "node_0/gpu_0_utilization/%"


def run_of_series(all_series: tuple[Series, ...]) -> Run:
    """Make a run with series only."""
    blank = Run("id", "source", (), None, None)
    return replace(blank, series=all_series)


def test_a_column_has_the_lowest_mean_and_highest_value() -> None:
    at, values = np.arange(0, 100, 10), np.arange(10.0)
    binned = over([at], [values], 0, 100, 2)
    # A value at the edge of two columns belongs to the time before it.
    assert (binned.low.tolist(), binned.high.tolist()) == ([1, 6], [5, 9])
    assert binned.mean.tolist() == [3, 7.5]


def test_zoomed_in_a_value_fills_the_time_since_the_previous_one() -> None:
    at, values = np.array([0, 10, 20, 50, 60]), np.array([1.0, 2.0, 3.0, 4.0, 5.0])
    binned = over([at], [values], 0, 60, 60)
    assert binned.mean[:10].tolist() == [2] * 10
    assert binned.mean[10:20].tolist() == [3] * 10
    # Values more than 20 apart are not connected.
    assert np.isnan(binned.mean[20:30]).all()
    assert binned.mean[31:50].tolist() == [4] * 19
    assert (binned.low[:20] == binned.high[:20]).all()


def test_columns_before_and_after_a_series_are_empty() -> None:
    at, values = np.arange(1000, 2000, 100), np.full(10, 7.0)
    binned = over([at], [values], 0, 4000, 40)
    assert np.isnan(binned.mean[:7]).all()
    assert (binned.mean[8:19] == 7).all()
    assert np.isnan(binned.mean[20:]).all()


def test_each_series_counts_once_in_the_mean() -> None:
    often, seldom = np.arange(0, 1000, 10), np.array([400, 900])
    binned = over([often, seldom], [np.full(100, 10.0), np.full(2, 30.0)], 0, 1000, 1)
    assert (binned.low[0], binned.mean[0], binned.high[0]) == (10, 20, 30)


def test_a_single_value_is_in_its_column() -> None:
    binned = over([np.array([55])], [np.array([3.0])], 0, 100, 10)
    assert np.flatnonzero(~np.isnan(binned.mean)).tolist() == [5]


@given(
    st.lists(st.integers(0, 10**6), min_size=1, max_size=60).map(sorted),
    st.integers(-(10**6), 10**6),
    st.integers(1, 10**6),
    st.integers(1, 50),
)
def test_columns_without_values_are_empty(
    times: list[int], begin: int, length: int, columns: int
) -> None:
    at, values = np.array(times), np.array(times, np.float64)
    binned = over([at], [values], begin, begin + length, columns)
    edges = np.linspace(begin, begin + length, columns + 1).astype(np.int64)
    for low, mean, high, left, right in zip(
        binned.low, binned.mean, binned.high, edges, edges[1:], strict=False
    ):
        inside = values[(at > left) & (at <= right)]
        if len(inside):
            assert (low, high) == (inside.min(), inside.max())
            assert low - 1e-6 <= mean <= high + 1e-6
        else:
            assert np.isnan(mean) or (low == mean == high and mean in values and mean > right - 1)


def test_figures_use_the_values_in_the_interval() -> None:
    cpu = series("cpu_utilization", "%", *range(10))
    figures = between([cpu, cpu], 2 * S, 4 * S)
    assert figures is not None
    assert (figures.mean, figures.low, figures.high, figures.values) == (3, 2, 4, 6)
    assert between([cpu], 20 * S, 30 * S) is None


def quantity_of(*all_series: Series, whole: bool = False) -> MachineQuantity:
    return MachineQuantity(all_series[0].name, all_series[0].unit, all_series, whole)


@pytest.mark.parametrize(
    ("name", "unit", "words"),
    [
        ("gpu_0_utilization", "%", "GPU 0 utilization, %"),
        ("network_receive", "MB/s", "Network, received, MB/s"),
        ("temperature", "", "Temperature"),
        ("\u202e<b>", "", "\\u202e<b>"),
        ("_", "", "?"),
    ],
)
def test_names_of_quantities_are_words(name: str, unit: str, words: str) -> None:
    assert label(quantity_of(series(name, unit, 1.0))) == words


def test_owners_of_all_series_are_named() -> None:
    together = MachineQuantity("gpu_utilization", "%", tuple(GPUS), True)
    assert label(together) == "GPU utilization, % (4 GPUs on 2 nodes)"
    assert (title(together), of_whom(together)) == ("GPU utilization", "4 GPUs on 2 nodes")
    assert label(quantity_of(GPUS[3])) == "GPU 1 utilization, % (node_1)"


@pytest.mark.parametrize(
    ("unit", "value", "shown"),
    [
        ("MB", 81_234.5, "81.2 GB"),
        ("GB", 12.5, "12.5 GB"),
        ("MB/s", 1_250.0, "1.25 GB/s"),
        ("W", 312.4, "312 W"),
        ("%", 4.25, "4.25%"),
    ],
)
def test_values_have_readable_units(unit: str, value: float, shown: str) -> None:
    assert reading(value, scale(quantity_of(series("x", unit, value)))) == shown


def test_evidence_is_from_the_steady_steps_and_not_a_verdict(run: Run) -> None:
    # The GPU is idle during the first step of three seconds.
    busy = series("gpu_0_utilization", "%", 0, 0, 0, 0, 60, 70, 80, 70, 60, 70, begin=began(run))
    bare, measured = analyse(run), analyse(replace(run, series=(busy,)))
    assert evidence(bare) == ""
    assert evidence(measured) == (
        "GPU 0 utilization was 68.3% on average over the steady steps: 6 values from 60.0% to 80.0%. "
        "The verdict does not rest on it."
    )
    assert measured.bottleneck == bare.bottleneck
    assert measured.findings == bare.findings


def test_without_values_in_the_steady_steps_there_is_no_evidence(run: Run) -> None:
    early = series("gpu_0_utilization", "%", 0.0, 0.0, begin=began(run))
    assert evidence(analyse(replace(run, series=(early,)))) == ""


def test_sizes_are_not_evidence(run: Run) -> None:
    disk = series("disk_usage", "%", *([5.0] * 12), begin=began(run))
    assert evidence(analyse(replace(run, series=(disk,)))) == ""


def test_the_chart_counts_from_the_runs_start(run: Run) -> None:
    memory = series("system_memory_usage", "MB", *([4000.0] * 12), begin=began(run))
    chart = machine_chart(analyse(replace(run, series=(memory,))))
    assert chart is not None
    assert (chart.title, chart.unit, chart.top) == ("System memory usage over the run", "GB", 4)
    assert chart.x[0] > 0
    assert chart.x[-1] == pytest.approx(11, abs=0.02)
    assert np.nanmax(chart.columns.high) == 4
    assert "4.00 GB to 4.00 GB in all. Measured by the machines themselves, every 1.00 s" in (
        chart.sentence
    )
    assert machine_chart(analyse(run)) is None

"""MLflow's machine series are assigned to the runs of their time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.machines import NAME, began_ms, history, write_metrics
from support.step_logs import Job, write_job

from stallscope.errors import NotFoundError, StallscopeError
from stallscope.parsers import read
from stallscope.parsers.formats.mlflow import MlflowMetricsParser
from stallscope.parsers.inspection.inspect_files import inspect
from stallscope.parsers.runs.reading import Reading
from stallscope.run import Run

GPU = "system/gpu_0_utilization_percentage"


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("logs")
    write_job(folder, Job(ranks=2, steps=200))
    return folder


@pytest.fixture
def began(logs: Path) -> int:
    (logs / NAME).unlink(missing_ok=True)
    (run,) = read(str(logs))
    return began_ms(run)


def read_one(folder: Path) -> Run:
    (run,) = read(str(folder))
    return run


@pytest.mark.parametrize(
    ("name", "known"),
    [
        (GPU, ("gpu_0_utilization", "%", None, None)),
        ("system/node_1/gpu_3_power_usage_watts", ("gpu_3_power_usage", "W", "node_1", None)),
        ("system/a/b/system_memory_usage_megabytes", ("system_memory_usage", "MB", "a/b", None)),
        ("system/rank_3/cpu_utilization_percentage", ("cpu_utilization", "%", "rank_3", 3)),
        ("system/gpu_0_memory_usage_gigabytes", ("gpu_0_memory_usage", "GB", None, None)),
        ("system/temperature", ("temperature", "", None, None)),
    ],
)
def test_names_give_unit_node_and_rank(
    logs: Path, began: int, name: str, known: tuple[object, ...]
) -> None:
    write_metrics(logs, {name: history(began, [1.0, 2.0])})
    (series,) = read_one(logs).series
    assert (series.name, series.unit, series.node, series.rank) == known
    assert series.where == NAME


def test_values_are_in_the_order_of_time_to_the_millisecond(logs: Path, began: int) -> None:
    write_metrics(logs, {GPU: [[began + 700, began + 3, began + 40], [7.0, 3.0, 4.5]]})
    (series,) = read_one(logs).series
    assert (series.wall_ns - began * 10**6).tolist() == [3_000_000, 40_000_000, 700_000_000]
    assert series.value.tolist() == [3.0, 4.5, 7.0]


SENT = "system/network_transmit_megabytes"


def test_network_counters_become_rates(logs: Path, began: int) -> None:
    times = [began, began + 500, began + 500, began + 1000, began + 3000]
    write_metrics(logs, {SENT: [times, [10.0, 12.0, 15.0, 15.0, 95.0]]})
    (series,) = read_one(logs).series
    assert (series.name, series.unit) == ("network_transmit", "MB/s")
    assert (series.wall_ns // 10**6 - began).tolist() == [500, 1000, 3000]
    assert series.value.tolist() == [10.0, 0.0, 40.0]


def test_a_reset_counter_gives_no_value_at_that_time(logs: Path, began: int) -> None:
    write_metrics(logs, {SENT: history(began, [100.0, 200.0, 300.0, 3.0, 53.0], 1000)})
    (series,) = read_one(logs).series
    assert (series.wall_ns // 10**6 - began).tolist() == [1000, 2000, 4000]
    assert series.value.tolist() == [100.0, 100.0, 50.0]


def test_counters_of_several_processes_are_not_mixed(logs: Path, began: int) -> None:
    write_metrics(logs, {SENT: history(began, [100.0, 2.0, 110.0, 4.0, 120.0, 6.0])})
    run = read_one(logs)
    assert run.series == ()
    assert [problem.what for problem in run.problems] == ["1 metric of machines cannot be read"]


def test_a_single_count_gives_no_rate(logs: Path, began: int) -> None:
    write_metrics(logs, {SENT: history(began, [100.0])})
    run = read_one(logs)
    assert (run.series, run.problems) == ((), ())


def test_step_logs_are_preferred_and_series_add_to_them(logs: Path, began: int) -> None:
    epochs = {"epoch_loss": [[began + 1000, 0, 0.5], [began + 2000, 1, 0.4]]}
    write_metrics(logs, {GPU: history(began, [1.0])}, metrics=epochs)
    run = read_one(logs)
    assert run.steps.num_rows == 400
    assert {log.path for log in run.logs} == {f"rank-{n:05d}.0.0.steps.csv" for n in (0, 1)}
    assert [len(series.value) for series in run.series] == [1]
    assert run.problems == ()


def test_only_values_measured_during_the_run_are_its_own(logs: Path, began: int) -> None:
    write_metrics(logs, {GPU: history(began - 5_000, [float(n) for n in range(4000)])})
    (series,) = read_one(logs).series
    assert series.value[0] == 20
    # 200 steps of 25 ms after half a second of tracing.
    assert 5 < (series.wall_ns[-1] - series.wall_ns[0]) / 1e9 < 7


def test_values_of_another_time_are_reported(logs: Path, began: int) -> None:
    day = 86_400_000
    write_metrics(
        logs,
        {GPU: history(began + day, [1.0, 2.0]), "system/x_watts": history(began, [5.0])},
    )
    run = read_one(logs)
    assert [series.name for series in run.series] == ["x"]
    (problem,) = run.problems
    assert problem.where == NAME
    assert "1 series of machine metrics from " in problem.what
    assert "this run was not under way then" in problem.what


def test_of_two_jobs_each_has_its_own_part(tmp_path: Path) -> None:
    for number in range(2):
        write_job(tmp_path, Job(ranks=1, steps=100, run_id=f"job-{number}", generation=number))
    first, second = read(str(tmp_path))
    assert began_ms(first) == began_ms(second)
    write_metrics(tmp_path, {GPU: history(began_ms(first), [1.0, 2.0])})
    assert [len(run.series[0].value) for run in read(str(tmp_path))] == [2, 2]


def test_missing_series_are_reported(logs: Path, began: int) -> None:
    damaged = {
        "system/a": [[began], ["x"]],
        "system/b": [[1], []],
        "system/c": 3,
        "loss": [[1], [1]],
    }
    write_metrics(logs, {GPU: history(began, [1.0]), **damaged}, system_metrics_left_out=7)
    run = read_one(logs)
    assert [series.name for series in run.series] == ["gpu_0_utilization"]
    assert [problem.what for problem in run.problems] == [
        "4 metrics of machines cannot be read",
        "MLflow has 7 more metrics of machines: only the most useful ones were requested",
    ]


def test_results_of_an_earlier_reading_are_used(logs: Path, began: int) -> None:
    path = write_metrics(logs, {GPU: history(began, [1.0, 2.0])})
    earlier, reading = Reading(), Reading()
    earlier.add_file(NAME, str(path), path.read_bytes())
    reading.merge(earlier)
    assert [series.name for _, series in reading.series] == ["gpu_0_utilization"]


def test_invalid_values_and_times_are_left_out(logs: Path, began: int) -> None:
    times = [began, began + 1, -5, 2**60, began + 2, None]
    write_metrics(logs, {GPU: [times, [None, 1.0, 1.0, 1.0, 1e300, 1.0]]})
    (series,) = read_one(logs).series
    assert series.value.tolist() == [1.0]


def test_files_of_older_versions_have_no_series(logs: Path, began: int) -> None:
    path = write_metrics(logs, {})
    document = json.loads(path.read_text())
    del document["system_metrics"]
    path.write_text(json.dumps(document))
    assert (read_one(logs).series, read_one(logs).problems) == ((), ())


def test_next_to_epochs_of_the_same_file_they_are_complete(tmp_path: Path) -> None:
    begin = 1_795_000_000_000
    epochs = {"epoch_loss": [[begin + 1000, 0, 0.5], [begin + 2000, 1, 0.4]]}
    write_metrics(
        tmp_path, {GPU: history(begin - 500, [1.0, 2.0, 3.0], 5000)}, metrics=epochs, start_ms=begin
    )
    (series,) = read_one(tmp_path).series
    assert len(series.value) == 3


def test_machine_series_alone_are_not_a_run(tmp_path: Path) -> None:
    write_metrics(tmp_path, {GPU: history(1_795_000_000_000, [1.0])})
    with pytest.raises(NotFoundError, match="there is no step log in this run"):
        read(str(tmp_path))


def test_inspect_lists_the_series(logs: Path, began: int) -> None:
    metrics = {
        f"system/node_{node}/cpu_utilization_percentage": history(began, [1.0, 2.0])
        for node in range(2)
    }
    write_metrics(logs, metrics)
    (seen,) = [file for file in inspect(str(logs)).files if file.path == NAME]
    (note,) = seen.notes
    assert note.startswith("machine metrics: 2 series of 2 nodes, 4 values from 20")
    assert seen.used


_ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)
_TIMES = st.lists(st.integers(-5, 2**44) | st.floats() | st.none(), min_size=2, max_size=2)
_NAMES = st.sampled_from([GPU, "system//x", "system/", "system/\n/x"]) | st.text(max_size=9)


@given(
    st.dictionaries(_NAMES, st.tuples(_TIMES, _TIMES).map(list) | _ANYTHING) | _ANYTHING, _ANYTHING
)
def test_nothing_crashes_it(metrics: Any, left_out: Any) -> None:
    document = {"run_id": "r", "system_metrics": metrics, "system_metrics_left_out": left_out}
    data = b'{"stallscope_mlflow": 1,' + json.dumps(document).encode()[1:]
    try:
        parsed = MlflowMetricsParser().parse("metrics.mlflow.json", data)
    except StallscopeError:
        return
    for series in parsed.series:
        assert len(series.wall_ns) == len(series.value) > 0
        assert (np.diff(series.wall_ns) >= 0).all()

"""MLflow's machine series are collected: from a real server, logged by its own monitor."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from simulator.recording import WALL_NS
from support.door import door
from support.step_logs import Job, write_job
from support.uploads import upload_folder
from support.waiting import wait_until

from stallscope.catalogue.collecting import collect
from stallscope.cli.main import main
from stallscope.collector.mlflow import metrics
from stallscope.collector.mlflow.metrics import read_histories
from stallscope.collector.source_kinds import open_source
from stallscope.collector.store.loading import RunOnDisk
from stallscope.opening import open_run
from stallscope.run import Series


def test_the_most_useful_metrics_are_requested_first_and_their_number_is_limited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = [f"system/gpu_{n}_utilization_percentage" for n in range(70)]
    names += ["loss", "system/cpu_utilization_percentage", "system/disk_usage_megabytes"]
    histories, left_out = read_histories(names, lambda _: [(5, 0, 1.0)])
    assert list(histories)[:11] == names[:11]
    assert (len(histories), left_out) == (64, 8)
    monkeypatch.setattr(metrics, "_MOST_VALUES", 30)
    histories, left_out = read_histories(names, lambda _: [(5, 0, 1.0)] * 7)
    assert (list(histories), left_out) == (names[:4], 68)


def test_values_that_are_not_numbers_are_left_out_and_times_are_in_order() -> None:
    def read(name: str) -> Sequence[tuple[int, int, float]]:
        return [(9, 1, 2.0), (5, 0, 1.0), (7, 2, float("nan"))]

    assert read_histories(["system/x"], read) == ({"system/x": ([5, 9], [1.0, 2.0])}, 0)


@pytest.mark.extras
def test_an_old_folder_has_them_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tmp_path / "mlruns" / "0" / ("a" * 32)
    write_job(run / "artifacts" / "stallscope" / "logs", Job(ranks=1, steps=60))
    (run / "meta.yaml").write_text(f"run_id: {'a' * 32}\nrun_name: old\nstatus: 3\n")
    (run.parent / "meta.yaml").write_text("name: Default\n")
    began = open_run(str(run / "artifacts")).started_at
    assert began is not None
    history = run / "metrics" / "system" / "cpu_utilization_percentage"
    history.parent.mkdir(parents=True)
    history.write_text(f"{round(began.timestamp() * 1000) + 5} 12.5 0\n")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", str(tmp_path / "mlruns"))
    (series,) = open_run("a" * 32).series
    assert (series.name, series.value.tolist()) == ("cpu_utilization", [12.5])


@pytest.fixture
def run_id(client: Any, request: pytest.FixtureRequest) -> str:
    experiment = client.create_experiment(request.node.name)
    return str(client.create_run(experiment, run_name="measured").info.run_id)


def monitored(client: Any, run_id: str, uri: str, node: str) -> None:
    """Let MLflow's own monitor log this machine until some values exist."""
    pytest.importorskip("psutil", reason="MLflow measures with psutil")
    from mlflow.system_metrics.system_metrics_monitor import SystemMetricsMonitor

    monitor = SystemMetricsMonitor(run_id, sampling_interval=0.2, node_id=node, tracking_uri=uri)
    name = f"system/{node}/cpu_utilization_percentage"
    monitor.start()
    wait_until(
        lambda: len(client.get_metric_history(run_id, name)) >= 3,
        "three values from MLflow's monitor",
    )
    monitor.finish()


@pytest.mark.services
def test_series_of_mlflows_monitor_are_kept_with_step_logs(
    client: Any,
    mlflow_server: str,
    run_id: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for node in ("node_0", "node_1"):
        monitored(client, run_id, mlflow_server, node)
    name = "system/node_0/cpu_utilization_percentage"
    logged = sorted(
        (metric.timestamp, metric.value) for metric in client.get_metric_history(run_id, name)
    )
    # A job that ran meanwhile, by its ranks' clocks.
    for path in write_job(tmp_path / "logs", Job(ranks=2, steps=400)):
        begun = str(logged[0][0] * 10**6)
        path.write_text(path.read_text().replace(str(WALL_NS), begun))
    upload_folder(tmp_path / "logs", run_id)
    run = open_run(run_id)
    assert run.steps.num_rows == 800
    assert {series.node for series in run.series} == {"node_0", "node_1"}
    (cpu,) = [s for s in run.series if (s.node, s.name) == ("node_0", "cpu_utilization")]
    assert cpu.unit == "%"
    assert (cpu.wall_ns // 10**6).tolist() == [ms for ms, _ in logged]
    assert cpu.value.tolist() == [value for _, value in logged]
    ((collected, folder),) = collect([open_source(run_id)], tmp_path / "store").runs
    for back in (collected, RunOnDisk.open(folder)):
        assert list(map(plainly, back.series)) == list(map(plainly, run.series))
    assert collect([open_source(run_id)], tmp_path / "store").unchanged
    capsys.readouterr()
    assert main(["inspect", run_id]) == 0
    assert "machine metrics" in capsys.readouterr().out


@pytest.mark.services
def test_steps_are_read_if_machine_metrics_are_refused(
    client: Any,
    mlflow_server: str,
    run_id: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client.log_metric(run_id, "system/cpu_utilization_percentage", 12.5)
    write_job(tmp_path / "logs", Job(ranks=2, steps=40))
    upload_folder(tmp_path / "logs", run_id)
    with door(mlflow_server) as front:
        front.answers = lambda request: (403, b"{}") if "get-history" in request.path else None
        monkeypatch.setenv("MLFLOW_TRACKING_URI", front.url)
        run = open_run(run_id)
    assert run.steps.num_rows == 80
    assert run.series == ()
    [problem] = [problem for problem in run.problems if "machines" in problem.what]
    assert "were not read" in problem.what


def plainly(series: Series) -> dict[str, Any]:
    arrays = {"wall_ns": series.wall_ns.tolist(), "value": series.value.tolist()}
    return {**vars(series), **arrays}

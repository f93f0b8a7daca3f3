"""MLflow runs without step logs are read from their metrics and printed output."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.schemas import errors_in
from support.step_logs import Job, write_job
from support.uploads import upload_folder

from stallscope.analysis import analyse
from stallscope.catalogue.collecting import collect
from stallscope.cli.main import main
from stallscope.collector.source_kinds import open_source
from stallscope.opening import open_run
from stallscope.reports.mlflow_run import write_summary
from stallscope.reports.run.json_content import json_content

pytestmark = pytest.mark.services

ROOT = Path(__file__).parents[2]
STDOUT = ROOT / "tests" / "parsers" / "printed" / "tf-2.15-verbose-1.txt"
#: Seconds after the run's start at which the epochs ended.
ENDS = (20, 30, 41)


@pytest.fixture
def run_id(client: Any, request: pytest.FixtureRequest) -> str:
    experiment = client.create_experiment(request.node.name)
    return str(client.create_run(experiment, run_name="caltech").info.run_id)


def log_epochs(client: Any, run_id: str) -> int:
    """Log what autologging logs in three epochs; return the run's start in milliseconds."""
    began = int(client.get_run(run_id).info.start_time)
    params = {"epochs": "3", "batch_size": "64", "steps_per_epoch": "100", "opt_name": "Adam"}
    for name, value in params.items():
        client.log_param(run_id, name, value)
    for epoch, second in enumerate(ENDS):
        for metric in ("loss", "val_loss"):
            client.log_metric(run_id, metric, 0.5, began + 1000 * second, epoch)
    client.set_terminated(run_id, end_time=began + 45_000)
    return began


def test_metrics_alone_are_a_run_of_epochs(client: Any, run_id: str) -> None:
    began = log_epochs(client, run_id)
    run = open_run(run_id)
    assert (run.id, run.name, run.source) == (run_id, "caltech", f"mlflow:{run_id}")
    assert run.started_at is not None
    assert run.started_at.timestamp() * 1000 == pytest.approx(began)
    analysis = analyse(run)
    known = analysis.epoch_times
    assert known is not None
    assert [(epoch.epoch, epoch.s) for epoch in known.epochs] == [(1, 10), (2, 11)]
    assert known.step_ms == pytest.approx(105)
    assert known.samples_per_second_per_rank == pytest.approx(6400 / 10.5)
    assert analysis.bottleneck.kind == "insufficient_data"
    assert "MLflow's metrics (epochs, to the millisecond)" in analysis.bottleneck.evidence
    assert analysis.job.total == 45
    assert run.problems == ()


def test_the_report_of_metrics_is_valid_and_names_what_is_missing(
    client: Any, run_id: str, capsys: pytest.CaptureFixture[str]
) -> None:
    log_epochs(client, run_id)
    # MLflow's own words.
    capsys.readouterr()
    assert main(["report", f"mlflow:{run_id}", "--format", "json"]) == 0
    (report,) = json.loads(capsys.readouterr().out)
    assert errors_in("report", report) == []
    assert report["epoch_times"]["mean_s"] == 10.5
    assert set(report["step_ms"].values()) == {None}
    assert {entry["ms"] for entry in report["ledger"]} == {None}
    assert main(["report", run_id]) == 0
    text = capsys.readouterr().out
    assert "Insufficient data" in text
    assert "Mean epoch:" in text
    assert "10.500 ± 0.001 s" in text


def test_printed_output_is_preferred_to_metrics(client: Any, run_id: str) -> None:
    client.log_artifact(run_id, str(STDOUT), "logs")
    client.log_text(run_id, "Layer  Shape", "model_summary.txt")
    alone = open_run(run_id)
    assert (alone.id, alone.name, alone.problems) == (run_id, "caltech", ())
    began = log_epochs(client, run_id)
    run = open_run(run_id)
    known = analyse(run).epoch_times
    assert known is not None
    assert known.known_from == "what Keras printed"
    assert [epoch.s for epoch in known.epochs] == [1, 1, 1]
    # Facts that only MLflow knows are there, too.
    assert (run.id, run.name, run.status) == (run_id, "caltech", "completed")
    assert run.started_at is not None
    assert run.started_at.timestamp() * 1000 == pytest.approx(began)
    assert (run.fact("batch_size"), run.fact("optimizer")) == (64, "Adam")
    # 64 samples in steps of 34.5 ms, as Keras printed them.
    assert known.samples_per_second_per_rank == pytest.approx(64 / 0.0345)
    assert run.problems == ()


def test_step_logs_are_preferred_to_both(client: Any, run_id: str, tmp_path: Path) -> None:
    log_epochs(client, run_id)
    client.log_artifact(run_id, str(STDOUT))
    write_job(tmp_path / "logs", Job(ranks=2, steps=40))
    upload_folder(tmp_path / "logs", run_id)
    assert open_run(run_id).steps.num_rows == 80
    assert open_run(run_id).problems == ()


def test_collected_twice_it_is_one_run(client: Any, run_id: str, tmp_path: Path) -> None:
    log_epochs(client, run_id)
    place = open_source(run_id)
    first = collect([place], tmp_path / "store")
    again = collect([place], tmp_path / "store")
    assert not first.unchanged
    assert again.unchanged
    ((run, folder),) = again.runs
    assert folder.name == run_id
    assert run.intervals.equals(open_run(run_id).intervals)


def test_the_summary_on_the_runs_page_is_not_a_metric_of_training(client: Any, run_id: str) -> None:
    log_epochs(client, run_id)
    before = json_content(analyse(open_run(run_id)))
    for _ in range(2):
        write_summary(analyse(open_run(run_id)), run_id)
    assert json_content(analyse(open_run(run_id))) == before
    assert client.get_run(run_id).data.tags["stallscope.bottleneck"] == "insufficient_data"

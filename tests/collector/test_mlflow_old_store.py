"""``mlruns`` folders, which MLflow 3 refuses, are read without it; here MLflow writes them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from support.step_logs import Job, write_job
from support.uploads import upload_folder

from stallscope.collector.mlflow.client import find_runs
from stallscope.collector.mlflow.mlflow_artifacts import is_old_store
from stallscope.errors import NotFoundError, UnreadableError
from stallscope.opening import open_run

JOB = Job(ranks=2, steps=40)
# MLflow warns that such folders are deprecated.
pytestmark = [pytest.mark.extras, pytest.mark.filterwarnings("ignore::FutureWarning")]


@pytest.fixture
def mlruns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", str(tmp_path / "mlruns"))
    return tmp_path / "mlruns"


@pytest.fixture
def client(mlruns: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a client that still writes such folders."""
    from mlflow import MlflowClient

    with monkeypatch.context() as allowed:
        allowed.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
        client = MlflowClient(str(mlruns))
        client.create_experiment("images of caltech")
    return client


def new_run(client: Any) -> str:
    experiment = client.get_experiment_by_name("images of caltech").experiment_id
    run = client.create_run(experiment, run_name="a name: with 'quotes' and\na line break")
    return str(run.info.run_id)


@pytest.mark.broad
@pytest.mark.parametrize("folder", [None, "stallscope", "stallscope/run-a", "stallscope/logs"])
def test_logs_among_its_artifacts_are_a_run(
    client: Any, mlruns: Path, tmp_path: Path, folder: str | None
) -> None:
    run_id = new_run(client)
    write_job(tmp_path / "logs", JOB)
    client.log_artifacts(run_id, str(tmp_path / "logs"), folder)
    client.log_text(run_id, "<html>", "stallscope/report.html")
    local = open_run(str(tmp_path / "logs"))
    for name in (run_id, f"mlflow:{run_id}"):
        run = open_run(name)
        assert run.steps.equals(local.steps)
        assert (run.id, run.problems) == (local.id, ())


def test_chunks_in_it_are_joined(
    client: Any, mlruns: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = new_run(client)
    write_job(tmp_path / "logs", JOB)
    monkeypatch.setattr("stallscope.collector.mlflow.log_upload._LARGEST_CHUNK", 1000)
    with monkeypatch.context() as allowed:
        allowed.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
        upload_folder(tmp_path / "logs", run_id)
    local = open_run(str(tmp_path / "logs"))
    assert open_run(run_id).steps.equals(local.steps)
    assert open_run(run_id).logs == local.logs


def test_the_content_of_a_run_is_listed(client: Any, mlruns: Path) -> None:
    run_id = new_run(client)
    client.log_param(run_id, "batch/size", "32")
    for loss in (3.0, 2.0, 1.5):
        client.log_metric(run_id, "loss", loss)
    with pytest.raises(NotFoundError, match=r"1 metric \(loss\), 1 param \(batch/size\)"):
        open_run(run_id)


def test_epochs_that_its_metrics_mark_are_read(client: Any, mlruns: Path) -> None:
    run_id = new_run(client)
    began = client.get_run(run_id).info.start_time
    client.log_param(run_id, "epochs", "3")
    for epoch in range(3):
        client.log_metric(run_id, "loss", 1.5, began + 4000 * (epoch + 1), epoch)
    client.set_terminated(run_id, end_time=began + 13_000)
    run = open_run(run_id)
    assert run.intervals["kind"].to_pylist() == ["epoch", "epoch", "end"]
    assert run.intervals["end"].to_pylist() == [8 * 10**9, 12 * 10**9, 13 * 10**9]
    assert (run.id, run.status, run.problems) == (run_id, "completed", ())
    assert run.name == "a name: with 'quotes' and\na line break"


def test_a_folder_that_was_moved_is_read_where_it_is_now(
    client: Any, mlruns: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = new_run(client)
    write_job(tmp_path / "logs", JOB)
    client.log_artifacts(run_id, str(tmp_path / "logs"))
    moved = tmp_path / "elsewhere" / "mlruns"
    shutil.copytree(mlruns, moved)
    shutil.rmtree(mlruns)
    for uri in (str(moved), moved.as_uri()):
        monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
        assert open_run(run_id).steps.num_rows == 80
    # Without any setting, it is the one in the working folder.
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    monkeypatch.chdir(moved.parent)
    assert open_run(run_id).steps.num_rows == 80


def test_deleted_and_unknown_runs_are_not_found(client: Any, mlruns: Path) -> None:
    kept, deleted = new_run(client), new_run(client)
    client.delete_run(deleted)
    with pytest.raises(NotFoundError, match="no step log in this run"):
        open_run(kept)
    for run_id in (deleted, "0" * 32):
        with pytest.raises(NotFoundError, match=r"no such run in .*mlruns"):
            open_run(run_id)
    with pytest.raises(NotFoundError, match="no such run"):
        open_run("mlflow:../../etc")


def test_a_damaged_run_is_an_error_of_one_sentence(client: Any, mlruns: Path) -> None:
    run_id = new_run(client)
    meta = next(mlruns.glob(f"*/{run_id}/meta.yaml"))
    meta.write_text("{ : [")
    with pytest.raises(UnreadableError, match=r"meta\.yaml: not a valid file of MLflow"):
        open_run(run_id)


def test_actions_that_need_a_server_say_so(
    client: Any, mlruns: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = new_run(client)
    write_job(tmp_path / "logs", JOB)
    # MLflow caches which folders it was once allowed to open.
    shutil.copytree(mlruns, tmp_path / "copy")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", str(tmp_path / "copy"))
    refused = (
        r"copy is not the address of a server; if it is a folder of an older.*"
        r"mlflow migrate-filestore"
    )
    with pytest.raises(UnreadableError, match=refused):
        upload_folder(tmp_path / "logs", run_id)
    with pytest.raises(UnreadableError, match=refused):
        find_runs("images of caltech")


def test_other_folders_are_not_taken_for_mlruns(tmp_path: Path) -> None:
    assert not is_old_store(tmp_path)
    assert not is_old_store(tmp_path / "nothing")

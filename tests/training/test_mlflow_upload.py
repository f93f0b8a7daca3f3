"""Two real ranks upload their logs to one MLflow run while they train."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.door import door
from support.uploads import end_uploads, upload_folder, uploaders
from support.waiting import wait_until
from training.launching import Launch, launch

from stallscope.collector.source_kinds import open_source
from stallscope.errors import NotFoundError
from stallscope.opening import open_run

pytestmark = [pytest.mark.horovod, pytest.mark.services, pytest.mark.unmeasured]

Starter = Callable[..., Launch]
NewRun = Callable[[str], tuple[Any, str]]

LOGS = [f"rank-{rank:05d}.0.0.steps.csv" for rank in range(2)]


@pytest.fixture
def start(training_side: None, tmp_path: Path) -> Iterator[Starter]:
    """Return a function that starts ranks, which end with the test."""
    launches: list[Launch] = []

    def begin(program: str, *arguments: str, ranks: int = 0) -> Launch:
        launches.append(launch(tmp_path / "printed.txt", program, *arguments, ranks=ranks))
        return launches[-1]

    yield begin
    for launched in launches:
        launched.end()


@pytest.fixture
def new_run(monkeypatch: pytest.MonkeyPatch) -> Iterator[NewRun]:
    """Return a function that makes a run on a server, and sets this server for all processes."""
    from mlflow import MlflowClient

    run_ids: list[str] = []

    def make(uri: str) -> tuple[Any, str]:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
        client = MlflowClient()
        run_ids.append(client.create_run("0").info.run_id)
        return client, run_ids[-1]

    yield make
    for run_id in run_ids:
        end_uploads(run_id)


def uploaded(run_id: str) -> dict[str, bytes]:
    """Return the logs of the run by name."""
    try:
        return {file.name: file.read() for file in open_source(f"mlflow:{run_id}").files()}
    except NotFoundError:
        return {}


def written(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("*.steps.csv")}


def epochs(out: Path) -> int:
    """Return how many epochs both ranks have trained."""
    notes = [out / f"rank-{rank}.txt" for rank in range(2)]
    return min(len(note.read_text().split()) if note.exists() else 0 for note in notes)


def wait_for_epochs(out: Path) -> None:
    """Wait until both ranks have trained two more epochs."""
    before = epochs(out)
    wait_until(lambda: epochs(out) > before + 1, "training continues")


def test_two_ranks_upload_to_one_run(
    start: Starter,
    mlflow_server: str,
    new_run: NewRun,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client, run_id = new_run(mlflow_server)
    monkeypatch.setenv("MLFLOW_RUN_ID", run_id)
    launched = start("uploading.py", "keras", str(tmp_path), ranks=2)
    wait_until(lambda: sorted(uploaded(run_id)) == LOGS, "a first upload of both ranks")
    assert epochs(tmp_path) < 10_000
    assert len(uploaders(run_id)) == 2
    (tmp_path / "stop").touch()
    launched.succeed()
    assert "stallscope" not in launched.output
    assert uploaders(run_id) == []
    assert uploaded(run_id) == written(tmp_path / "logs")
    run, local = open_run(run_id), open_run(str(tmp_path / "logs"))
    assert run.steps.equals(local.steps)
    assert run.intervals.equals(local.intervals)
    assert (run.id, run.ranks, run.status, run.problems) == (local.id, [0, 1], "completed", ())
    # Uploads neither start nor end the run: its owner does.
    assert client.get_run(run_id).info.status == "RUNNING"
    assert client.get_run(run_id).data.metrics == {}
    assert upload_folder(tmp_path / "logs", run_id).size == 0


def test_measurements_of_loaders_are_uploaded_with_the_log(
    start: Starter, mlflow_server: str, new_run: NewRun, tmp_path: Path
) -> None:
    """Loaders are measured before, during and after a recording."""
    _, run_id = new_run(mlflow_server)
    launched = start("uploading.py", "measured", str(tmp_path), run_id)
    wait_until(lambda: len(uploaded(run_id)) == 5, "an upload of the log and of four measurements")
    (tmp_path / "stop").touch()
    launched.succeed()
    assert "stallscope" not in launched.output
    assert uploaded(run_id) == {
        path.name: path.read_bytes() for path in (tmp_path / "logs").glob("rank-*")
    }
    measured = open_run(run_id).input_times
    assert sorted(measurement.batches + measurement.warm_up for measurement in measured) == [
        4,
        5,
        6,
        60_000,
    ]


def test_everything_that_a_killed_rank_has_written_is_uploaded(
    start: Starter, mlflow_server: str, new_run: NewRun, tmp_path: Path
) -> None:
    _, run_id = new_run(mlflow_server)
    launched = start("uploading.py", "torch", str(tmp_path), run_id, ranks=2)
    wait_until(lambda: epochs(tmp_path) > 3, "some epochs")
    match = re.search(rb'"pid":(\d+)', (tmp_path / "logs" / LOGS[1]).read_bytes())
    assert match is not None
    os.kill(int(match.group(1)), signal.SIGKILL)
    assert launched.wait() != 0
    wait_until(lambda: not uploaders(run_id), "the end of the processes that upload")
    remote, local = uploaded(run_id), written(tmp_path / "logs")
    assert remote[LOGS[1]] == local[LOGS[1]]
    # The launcher has ended the other rank, perhaps with its upload.
    assert local[LOGS[0]].startswith(remote.get(LOGS[0], b""))
    upload_folder(tmp_path / "logs", run_id)
    assert uploaded(run_id) == local


def test_training_continues_while_the_server_is_down(
    start: Starter, mlflow_server: str, new_run: NewRun, tmp_path: Path
) -> None:
    logs = tmp_path / "logs"
    with door(mlflow_server) as front:
        _, run_id = new_run(front.url)
        launched = start("uploading.py", "torch", str(tmp_path), run_id, ranks=2)
        wait_until(lambda: sorted(uploaded(run_id)) == LOGS, "a first upload of both ranks")
    diaries = [logs / log.replace(".steps.csv", ".upload.log") for log in LOGS]
    wait_until(lambda: all(diary.exists() for diary in diaries), "failed uploads of both ranks")
    wait_for_epochs(tmp_path)
    (tmp_path / "stop").touch()
    launched.succeed()
    assert launched.output.count("uploads are retried during training") == 2
    assert (
        launched.output.count(f"stallscope collect {logs} --to mlflow:{run_id} uploads the rest")
        == 2
    )
    with door(mlflow_server, int(front.url.rpartition(":")[2])):
        local = written(logs)
        assert sum(map(len, uploaded(run_id).values())) <= sum(map(len, local.values()))
        upload_folder(logs, run_id)
        assert uploaded(run_id) == local
        assert open_run(run_id).status == "completed"
        # Processes that still retry find everything uploaded, or upload it.
        wait_until(lambda: not uploaders(run_id), "the end of the processes that upload")
        assert uploaded(run_id) == local

"""The process that uploads a growing log during training, on a real server."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.door import door
from support.services import tool
from support.uploads import end_uploads, uploaders
from support.waiting import PATIENCE_SECONDS, wait_until

from stallscope.collector.mlflow import process
from stallscope.collector.recorder import subprocesses
from stallscope.collector.recorder.subprocesses import WATCH
from stallscope.collector.source_kinds import open_source
from stallscope.opening import open_run

pytestmark = pytest.mark.services

#: Records a step every 10 ms until a file appears. Prints how long the recorder delayed it.
PROGRAM = """
import json, logging, os, sys, time
from pathlib import Path
logging.basicConfig(format="%(message)s")
settings = json.loads(sys.argv[1])
if settings["without_packages"]:
    sys.path[:] = [path for path in sys.path if "site-packages" not in path]
sys.path.insert(0, settings["source"])
from stallscope.collector.recorder.guards import read_clocks
from stallscope.collector.recorder.job.world import World
from stallscope.collector.recorder.options import Options
from stallscope.collector.recorder import subprocesses
from stallscope.collector.recorder.session import Session
from stallscope.collector.recorder.step_log.line_format import StepRow
folder, stop = Path(settings["folder"]), Path(settings["stop"])
# The process that uploads has low priority: on a busy machine the last upload takes long.
subprocesses._LAST_UPLOAD_SECONDS = 900.0
for fit in range(settings["fits"]):
    options = Options(folder, flush_seconds=0.1, mlflow_run_id=settings["run"])
    session = Session(options, World(0, 1, None), {}, fit * 1000)
    if settings["forks"] and os.fork() == 0:
        # As a loader's worker does, it has the pipe, too, and outlives the training.
        signal.pause()
        os._exit(0)
    step = fit * 1000
    while not stop.exists() or step < fit * 1000 + 20:
        now, clock = read_clocks()
        session.step(StepRow(step, 0, now, now + 1, now + 2, now + 3, now + 4, 1, 8, clock))
        step += 1
        # A step takes this long: logs stay small until the test says stop.
        time.sleep(0.01)
    session.close()
print("done", flush=True)
"""
SOURCE = Path(__file__).parents[2] / "src"


class Training:
    """A recorded program that uploads its log to a run."""

    def __init__(self, folder: Path, run_id: str, uri: str, **settings: Any) -> None:
        self.logs = folder / "logs"
        self.stop = folder / "stop"
        arguments = {
            "folder": str(self.logs),
            "stop": str(self.stop),
            "run": run_id,
            "source": str(SOURCE),
            "fits": 1,
            "forks": False,
            "without_packages": False,
            **settings,
        }
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, json.dumps(arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "MLFLOW_TRACKING_URI": uri},
            start_new_session=True,
        )

    def end(self) -> tuple[str, str]:
        """Let it end; return what it printed, and what it logged."""
        self.stop.touch()
        out, err = self.process.communicate(timeout=PATIENCE_SECONDS)
        assert self.process.returncode == 0, err.decode()
        return out.decode(), err.decode()

    def bytes(self) -> bytes:
        [log] = self.logs.glob("*.steps.csv")
        return log.read_bytes()


Starter = Callable[..., Training]


@pytest.fixture
def server(mlflow_server: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", mlflow_server)
    return mlflow_server


def new_run(uri: str) -> str:
    from mlflow import MlflowClient

    return str(MlflowClient(uri).create_run("0").info.run_id)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Starter]:
    started: list[tuple[Training, str]] = []

    def begin(run_id: str, uri: str, **settings: Any) -> Training:
        training = Training(tmp_path, run_id, uri, **settings)
        started.append((training, run_id))
        return training

    yield begin
    for training, run_id in started:
        if training.process.poll() is None:
            os.killpg(training.process.pid, signal.SIGKILL)
        training.process.communicate()
        end_uploads(run_id)


def uploaded(run_id: str) -> bytes:
    """Return the run's copy of the only log; empty if there is none yet."""
    from stallscope.errors import NotFoundError

    try:
        [log] = open_source(f"mlflow:{run_id}").files()
    except NotFoundError:
        return b""
    return log.read()


def test_whole_lines_are_uploaded_while_it_grows_and_the_rest_at_the_end(
    start: Starter, server: str
) -> None:
    run_id = new_run(server)
    training = start(run_id, server)
    wait_until(lambda: uploaded(run_id), "a first upload")
    first = uploaded(run_id)
    assert first.startswith(b"#stallscope 1 ")
    assert first.endswith(b"\n")
    assert training.process.poll() is None
    wait_until(lambda: len(uploaded(run_id)) > len(first), "a second upload")
    out, err = training.end()
    assert (out, err) == ("done\n", "")
    wait_until(lambda: not uploaders(run_id), "the end of the process that uploads")
    assert uploaded(run_id) == training.bytes()
    assert open_run(run_id).status == "completed"
    assert uploaders(run_id) == []
    assert [path.suffix for path in training.logs.iterdir()] in (
        [".csv", ".json"],
        [".json", ".csv"],
    )


def test_several_fits_share_one_process(start: Starter, server: str) -> None:
    run_id = new_run(server)
    training = start(run_id, server, fits=3)
    wait_until(lambda: uploaders(run_id), "the process that uploads")
    [only] = uploaders(run_id)
    training.stop.touch()
    wait_until(lambda: len(list(training.logs.glob("*.steps.csv"))) == 3, "three logs")
    assert set(uploaders(run_id)) <= {only}
    training.end()
    wait_until(lambda: not uploaders(run_id), "the end of the process that uploads")
    assert [log.part for log in open_run(run_id).logs] == [0, 1, 2]


def test_the_log_of_a_killed_training_is_uploaded_as_well(start: Starter, server: str) -> None:
    run_id = new_run(server)
    training = start(run_id, server)
    wait_until(lambda: uploaders(run_id), "the process that uploads")
    wait_until(lambda: list(training.logs.glob("*.csv")), "a log")
    wait_until(lambda: training.bytes().count(b"\nstep,") > 50, "some steps")
    os.kill(training.process.pid, signal.SIGKILL)
    training.process.wait()
    wait_until(lambda: not uploaders(run_id), "the end of the process that uploads")
    assert uploaded(run_id) == training.bytes()
    run = open_run(run_id)
    assert run.status == "open"
    assert run.steps.num_rows > 50


def test_a_worker_that_holds_the_pipe_does_not_hold_the_upload(start: Starter, server: str) -> None:
    run_id = new_run(server)
    training = start(run_id, server, forks=True)
    wait_until(lambda: list(training.logs.glob("*.csv")), "a log")
    wait_until(lambda: training.bytes().count(b"\nstep,") > 50, "some steps")
    # Only the training: its worker keeps running.
    os.kill(training.process.pid, signal.SIGKILL)
    wait_until(lambda: not uploaders(run_id), "the end of the process that uploads")
    assert uploaded(run_id) == training.bytes()
    os.killpg(training.process.pid, signal.SIGKILL)


def test_a_server_that_starts_late_gets_everything(start: Starter, mlflow_server: str) -> None:
    run_id = new_run(mlflow_server)
    port = tool("server").free_port()
    uri = f"http://127.0.0.1:{port}"
    training = start(run_id, uri)
    diary = training.logs / "rank-00000.0.0.upload.log"
    wait_until(diary.exists, "the first failed upload")
    assert "refused" in diary.read_text()
    before = len(training.bytes())
    wait_until(lambda: len(training.bytes()) > before, "training going on")
    with door(mlflow_server, port), pytest.MonkeyPatch.context() as m:
        m.setenv("MLFLOW_TRACKING_URI", uri)
        wait_until(lambda: uploaded(run_id), "an upload")
        out, err = training.end()
        wait_until(lambda: not uploaders(run_id), "the end of the process that uploads")
        assert uploaded(run_id) == training.bytes()
    assert out == "done\n"
    warning, *later = err.splitlines()
    assert "failed: [Errno 111] Connection refused; uploads are retried" in warning
    # On busy cores the upload may take longer than training waits for it.
    assert all("still uploads logs" in line for line in later)


def test_without_a_server_training_ends_and_says_how_to_upload_later(
    start: Starter, tmp_path: Path
) -> None:
    uri = f"http://somebody:hidden@127.0.0.1:{tool('server').free_port()}"
    training = start("0" * 32, uri)
    wait_until(lambda: list(training.logs.glob("*.csv")), "a log")
    out, err = training.end()
    assert out == "done\n"
    assert f"stallscope collect {training.logs} --to mlflow:{'0' * 32} uploads the rest" in err
    diary = training.logs / "rank-00000.0.0.upload.log"
    wait_until(diary.exists, "the first failed upload")
    assert "hidden" not in err + diary.read_text()
    assert open_run(str(training.logs)).status == "completed"


def test_an_upload_that_outlasts_the_wait_for_it_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # A process that neither uploads nor ends: a server that accepts data so slowly takes minutes.
    endless = [sys.executable, "-c", "import time; time.sleep(3600)"]
    monkeypatch.setattr(subprocesses, "program", lambda *words: endless)
    monkeypatch.setattr(subprocesses, "_LAST_UPLOAD_SECONDS", 0.1)
    uploader = subprocesses._Uploader("a1")
    uploader.send(WATCH, tmp_path / "rank-00000.0.0.steps.csv")
    uploader._finish()
    uploader._process.kill()
    [message] = [record.getMessage() for record in caplog.records]
    assert f"process {uploader._process.pid} still uploads logs" in message
    assert f"stallscope collect {tmp_path} --to mlflow:a1 uploads the rest" in message


def test_without_mlflow_there_is_one_warning(start: Starter, server: str) -> None:
    run_id = new_run(server)
    training = start(run_id, server, fits=2, without_packages=True)
    wait_until(lambda: list(training.logs.glob("*.csv")), "a log")
    out, err = training.end()
    assert out == "done\n"
    assert err.splitlines() == [
        f"stallscope: mlflow is not installed, so logs are not uploaded to run {run_id}: "
        "pip install mlflow-skinny"
    ]
    assert len(open_run(str(training.logs)).logs) == 2


def test_a_process_that_cannot_be_started_is_one_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from stallscope.collector.recorder import subprocesses

    monkeypatch.setattr(sys, "executable", str(tmp_path / "nothing"))
    subprocesses.watch(tmp_path / "rank-00000.0.0.steps.csv", "f" * 32)
    subprocesses.finish(tmp_path / "rank-00000.0.0.steps.csv", "f" * 32)
    [record] = caplog.records
    assert "logs are not uploaded to MLflow's run" in record.message
    assert "training goes on" in record.message


def test_the_run_is_the_named_one_or_the_environments(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from stallscope.collector.recorder.subprocesses import mlflow_run_of

    monkeypatch.delenv("MLFLOW_RUN_ID", raising=False)
    assert mlflow_run_of(None) is None
    monkeypatch.setenv("MLFLOW_RUN_ID", "from the environment")
    assert mlflow_run_of(None) == "from the environment"
    assert mlflow_run_of("named") == "named"


def test_an_invalid_run_is_refused_at_once() -> None:
    from stallscope.collector.recorder.options import Options

    rest = {"run_name": None, "synthetic": False, "batch_size": None, "sink": "file"}
    with pytest.raises(TypeError, match="mlflow_run_id is the id of an MLflow run, not 7"):
        Options("logs", mlflow_run_id=7, flush_seconds=1.0, stages=True, **rest)  # type: ignore[arg-type]


def test_ten_hours_of_training_are_fifty_requests(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import requests

    log = tmp_path / "rank-00000.0.0.steps.csv"
    log.write_text("#stallscope 1 {}\n")
    run_id = new_run(server)
    asked: list[str] = []
    send = requests.adapters.HTTPAdapter.send

    def counted(self: Any, request: Any, **options: Any) -> Any:
        asked.append(f"{request.method} {request.url}")
        return send(self, request, **options)

    monkeypatch.setattr(requests.adapters.HTTPAdapter, "send", counted)
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(process, "time", SimpleNamespace(monotonic=lambda: clock.now))

    class TenHours:
        over = False

        def next_message(self, until: float) -> list[str] | None:
            if clock.now == 0.0:
                clock.now = 0.1
                return [WATCH, str(log)]
            clock.now = until
            with log.open("a") as file:
                file.write(f"step,{until}\n")
            self.over = clock.now >= 36_000
            return None

    process.Uploader(run_id, TenHours()).run()  # type: ignore[arg-type]
    assert 40 < len(asked) < 50
    assert uploaded(run_id) == log.read_bytes()


@pytest.mark.parametrize("version", ["3.8", "3.9", "3.11", "3.13"])
def test_the_uploader_needs_the_standard_library_only(version: str) -> None:
    from recorder.test_python_versions import interpreter

    python = interpreter(version)
    if python is None:
        pytest.skip(f"there is no python{version} here to run it with")
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]); import stallscope.collector.mlflow.process;"
        "print([name for name in sys.modules if 'site-packages' in str(getattr("
        "sys.modules[name], '__file__', ''))])"
    )
    done = subprocess.run(
        [python, "-I", "-S", "-c", program, str(SOURCE)], capture_output=True, text=True
    )
    assert (done.stdout, done.stderr) == ("[]\n", "")

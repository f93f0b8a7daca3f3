"""Files of web servers: with and without a length, whole and in parts, and broken connections."""

from __future__ import annotations

import gzip
import http.server
import os
import pickle
import re
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fsspec
import pytest
from support.door import TIMEOUT_SECONDS, door
from support.step_logs import Job, run_of_job
from support.waiting import PATIENCE_SECONDS
from support.web import Web, web

from stallscope.cli.main import main
from stallscope.collector.mlflow import client
from stallscope.collector.source_kinds import open_source
from stallscope.collector.sources import databricks
from stallscope.collector.sources import source as sources_source
from stallscope.collector.sources import web as web_files
from stallscope.collector.sources.files import Files
from stallscope.collector.store import fetch as fetching
from stallscope.errors import NotFoundError, UnansweredError, UnreadableError
from stallscope.opening import open_run
from stallscope.parsers import read
from stallscope.parsers.inspection.inspect_files import inspect

pytestmark = pytest.mark.extras

SAMPLES = Path(__file__).parents[1] / "parsers"
EVENT_LOG = gzip.decompress((SAMPLES / "neighbours" / "spark-event-log.gz").read_bytes())
APPLICATION = "app-20261121230239-0000"
STEPS = [f"rank-0000{rank}.0.0.steps.csv" for rank in (0, 1)]
SERVERS: dict[str, dict[str, Any]] = {
    "chunked": {},
    "chunked, and none is said for a length": {"head": 0},
    "chunked, in parts": {"parts": True},
    "wholes": {"sized": True},
    "parts": {"sized": True, "parts": True},
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Make a run, an event log of its time, and all kinds of companion files."""
    folder = tmp_path_factory.mktemp("logs")
    run = run_of_job(folder, Job(ranks=2, steps=3000))
    assert run.started_at is not None
    later = int(run.started_at.timestamp() * 1000) - 1795302199182
    of_the_run = re.sub(
        rb"(?<!\d)179530[0-9]{7}(?!\d)", lambda match: b"%d" % (int(match[0]) + later), EVENT_LOG
    )
    content = {name: (folder / name).read_bytes() for name in STEPS} | {
        APPLICATION: of_the_run,
        "stdout.txt": (SAMPLES / "printed" / "horovodrun-stamped.txt").read_bytes(),
        "autotune.csv": b"cycle_time_ms,tensor_fusion_threshold,score\n" + b"1,2,3\n" * 20,
        "timeline.json": b'[\n{"ph": "B", "name": "ALLREDUCE", "ts": 1, "pid": 1},\n' * 4000,
    }
    page = "".join(f'<a href="{name}">{name}</a>' for name in content).encode()
    return {**content, "": page}


@pytest.fixture(params=SERVERS)
def server(request: pytest.FixtureRequest, files: dict[str, bytes]) -> Iterator[Web]:
    with web(files=dict(files), **SERVERS[request.param]) as served:
        yield served


def listed(server: Web, name: str) -> bytes:
    """A file as a source returns it, once whole and once in parts."""
    (file,) = open_source(f"{server.url}/{name}").files()
    assert file.name == name
    whole = file.read()
    assert file.size == len(whole)
    middle = len(whole) // 2
    assert [file.read(at, at + 10) for at in (0, middle)] == [whole[:10], whole[middle:][:10]]
    assert file.read(middle) == whole[middle:]
    assert file.read(len(whole)) == b""
    assert file.read(5, 5) == b""
    return whole


@pytest.mark.parametrize("name", [*STEPS, APPLICATION, "stdout.txt", "autotune.csv"])
def test_any_file_can_be_read_whole_and_in_parts(
    server: Web, name: str, files: dict[str, bytes]
) -> None:
    assert listed(server, name) == files[name]


def test_an_event_log_gives_its_run(server: Web) -> None:
    (run,) = read(f"{server.url}/*")
    assert run.steps.num_rows == 6000
    assert {"executor_lost", "task_failed"} <= {event.kind for event in run.events}


def test_inspect_names_the_kind_of_each_file(server: Web, files: dict[str, bytes]) -> None:
    seen = {file.path: file for file in inspect(f"{server.url}/*").files}
    assert {name: file.bytes for name, file in seen.items()} == {
        name: len(data) for name, data in files.items() if name
    }
    assert {name: file.format for name, file in seen.items()} == {
        **dict.fromkeys(STEPS, "step-log"),
        APPLICATION: "spark-events",
        "stdout.txt": "keras-output",
        "autotune.csv": "autotune-log",
        "timeline.json": "horovod-timeline",
    }
    assert seen[APPLICATION].notes[0].startswith("events: ")


def test_a_large_file_is_read_at_its_start_and_end(server: Web) -> None:
    (seen,) = inspect(f"{server.url}/{STEPS[0]}", most_bytes=20_000).files
    assert (seen.steps, seen.torn_lines) == (3000, 0)
    assert seen.notes == ("only its first and last 10000 bytes were looked at",)


@pytest.mark.parametrize("pattern", ["*.steps.csv", STEPS[0]])
def test_everything_is_collected(server: Web, pattern: str, tmp_path: Path) -> None:
    assert main(["collect", f"{server.url}/{pattern}", "--to", str(tmp_path)]) == 0
    run = open_run(str(tmp_path / "run-a"))
    assert run.steps.num_rows == (6000 if "*" in pattern else 3000)


def test_a_grown_file_has_its_new_length(server: Web) -> None:
    data = server.files[STEPS[0]]
    source = open_source(f"{server.url}/{STEPS[0]}")
    server.files[STEPS[0]] = data[:30_000]
    (before,) = source.files()
    assert before.read(0, 100) == data[:100]
    server.files[STEPS[0]] = data
    (after,) = source.files()
    assert (before.size, after.size) == (30_000, len(data))
    assert after.read(29_000) == data[29_000:]


def test_on_another_machine_it_is_opened_again(server: Web, files: dict[str, bytes]) -> None:
    (file,) = open_source(f"{server.url}/{APPLICATION}").files()
    unpickled = pickle.loads(pickle.dumps(file))
    assert unpickled.read(100, 200) == files[APPLICATION][100:200]
    assert unpickled.read() == files[APPLICATION]


def test_a_server_without_ranges_is_asked_for_a_whole_file_once(files: dict[str, bytes]) -> None:
    with web(files=files, sized=True) as server:
        (file,) = open_source(f"{server.url}/{STEPS[0]}").files()
        server.asked.clear()
        for at in range(0, 10_000, 1000):
            file.read(at, at + 1000)
        # The answer to the first request is cut off.
        assert len(server.asked) == 2


def test_no_copy_stays(files: dict[str, bytes], tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with web(files=files) as server:
        source = open_source(f"{server.url}/{STEPS[0]}")
        (file,) = source.files()
        assert [path for path in tmp_path.rglob("*") if path.is_file()]
        file.read()
        assert not [path for path in tmp_path.rglob("*") if path.is_file()]
        del source, file
    assert not list(tmp_path.iterdir())


LOOKS: dict[str, Callable[[str], object]] = {
    "report": lambda url: main(["report", url]),
    "inspect": lambda url: main(["inspect", url]),
    "collect": lambda url: main(["collect", url, "--to", "store"]),
}


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(fetching._read.retry, "sleep", lambda seconds: None)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("sized", [True, False], ids=["sized", "chunked"])
@pytest.mark.parametrize("name", [STEPS[0], APPLICATION, "stdout.txt"])
@pytest.mark.parametrize("look", LOOKS)
def test_a_broken_transfer_is_an_error_and_never_an_empty_file(
    look: str, name: str, sized: bool, files: dict[str, bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    with web(files=files, sized=sized, breaks_at=1) as server:
        code = LOOKS[look](f"{server.url}/{name}")
    printed = "".join(capsys.readouterr())
    if (look, name) == ("report", APPLICATION):
        assert "Spark's own logs and no step logs" in printed  # alone they are not opened
    else:
        assert "the connection was lost during the transfer" in " ".join(printed.split())
    assert code == (0 if look == "inspect" else 2)


@pytest.mark.usefixtures("impatient")
def test_a_broken_event_log_is_reported_in_its_run(files: dict[str, bytes]) -> None:
    with web(files=files) as server:
        sources = open_source(f"{server.url}/*").files()
        server.breaks_at = 1
        (event_log,) = [file for file in sources if file.name == APPLICATION]
        assert event_log.read() == files[APPLICATION]  # its copy is here
        (again,) = open_source(f"{server.url}/{APPLICATION}").files()
        with pytest.raises(UnreadableError, match="the connection was lost during the transfer"):
            again.read(0, 100)


def test_an_endless_file_is_refused(
    files: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web_files, "_MOST_BYTES", 1 << 20)
    with web(files=files, times=100) as server:
        with pytest.raises(UnreadableError) as refused:
            open_source(f"{server.url}/{STEPS[0]}?key=secret").files()
        assert str(refused.value) == (
            f"{server.url}/{STEPS[0]}: the server sends more than 1 MiB without a size, "
            "so this is probably not a log; if it is, download it first"
        )


def test_refusing_and_unreachable_servers_are_distinguished(files: dict[str, bytes]) -> None:
    with web(files=files) as server:
        with pytest.raises(NotFoundError, match="no such file or folder"):
            open_source(f"{server.url}/nothing").files()
        server.refuses = 403
        with pytest.raises(UnreadableError, match=r"cannot be opened: 403, message='Forbidden'"):
            open_source(f"{server.url}/{STEPS[0]}").files()
    with pytest.raises(UnreadableError, match="Cannot connect to host"):
        open_source(f"{server.url}/{STEPS[0]}").files()


def test_a_key_in_the_query_is_not_part_of_a_name(files: dict[str, bytes]) -> None:
    with web(files=files) as server:
        (file,) = open_source(f"{server.url}/{APPLICATION}?key=secret").files()
        assert (file.name, file.where) == (APPLICATION, f"{server.url}/{APPLICATION}")
        (seen,) = inspect(f"{server.url}/{APPLICATION}?key=secret").files
        assert seen.format == "spark-events"


def test_broken_links_are_reported(files: dict[str, bytes]) -> None:
    page = files[""] + b'<a href="rank-00002.0.0.steps.csv">gone</a>'
    with web(files={**files, "": page}) as server:
        (run,) = read(f"{server.url}/*.steps.csv")
    assert run.ranks == [0, 1]
    assert "rank-00002.0.0.steps.csv: " in str(run.problems[0])


def test_a_denied_file_and_a_broken_link_do_not_keep_others_from_being_collected(
    files: dict[str, bytes], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = files[""] + b'<a href="rank-00002.0.0.steps.csv">gone</a>'
    words = ["--to", str(tmp_path / "store")]
    with web(files={**files, "": page}, denied=(STEPS[1],)) as server:
        url = f"{server.url}/*.steps.csv"
        assert main(["collect", url, *words]) == 0
        err = capsys.readouterr().err
        assert f"  {STEPS[1]}: cannot be read: 403, message='Forbidden'" in err
        assert "rank-00002.0.0.steps.csv: cannot be read: the file was removed" in err
        assert open_run(str(tmp_path / "store")).ranks == [0]
        server.denied = ()
        assert main(["collect", url, *words]) == 0
    assert open_run(str(tmp_path / "store")).ranks == [0, 1]


def test_a_server_that_stops_answering_is_named_once_while_its_files_are_read(
    files: dict[str, bytes], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(Files, "timeout_seconds", TIMEOUT_SECONDS)
    with web(files=files, **SERVERS["wholes"]) as server, door(server.url) as front:
        place = open_source(f"{front.url}/*.steps.csv")
        logs = place.files()
        announce_every_wait(monkeypatch)
        # A busy machine may take longer for all files.
        monkeypatch.setattr(sources_source, "_SECONDS_BETWEEN_WARNINGS", PATIENCE_SECONDS)
        front.concerns, front.stops_after = lambda request: True, 0
        message = f"cannot be read: no data arrived for {TIMEOUT_SECONDS} s"
        for log in logs:
            with pytest.raises(UnreadableError, match=message):
                log.read()
    assert len(logs) > 1
    assert caplog.messages == [f"stallscope: {place.where}: still reading after 0.1 s"]


def announce_every_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every wait last until 0.1 s are over, although its time-out may come first."""

    class Timer(threading.Timer):
        def cancel(self) -> None:
            self.join()

    monkeypatch.setattr(sources_source, "_SILENT_SECONDS", 0.1)
    monkeypatch.setattr(sources_source.threading, "Timer", Timer)


@pytest.mark.broad
@pytest.mark.parametrize(
    "url",
    [
        *("http://{}/a.csv", "webhdfs://u@{}/logs", "s3://b/a", "gs://b/a", "az://b/a"),
        "ssh://{}/logs",
    ],
)
def test_a_wait_for_an_answer_is_announced(
    url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    announce_every_wait(monkeypatch)
    with silent_server(monkeypatch) as silent:
        place = open_source(url.format(silent.address))
        with pytest.raises(UnansweredError, match="cannot be opened"):
            place.files()
    assert f"stallscope: {place.where}: still waiting for an answer after 0.1 s" in caplog.text


@dataclass
class SilentServer:
    """A server that accepts connections, and never answers."""

    address: str
    connections: list[socket.socket] = field(default_factory=list)


@contextmanager
def silent_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[SilentServer]:
    """Run a silent server that all clients find, with their own numbers of attempts."""
    monkeypatch.setattr(Files, "timeout_seconds", 1)
    # Clients of tests before have the addresses of their servers.
    monkeypatch.setattr(fsspec.AbstractFileSystem, "cachable", False)
    with socket.create_server(("127.0.0.1", 0)) as listener, ExitStack() as stack:
        server = SilentServer(f"127.0.0.1:{listener.getsockname()[1]}")

        def accept() -> None:
            with suppress(OSError):
                while True:
                    server.connections.append(stack.enter_context(listener.accept()[0]))

        threading.Thread(target=accept, daemon=True).start()
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{server.address}")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "somebody")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "something")
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"http://{server.address}")
        monkeypatch.setenv("DATABRICKS_HOST", f"http://{server.address}")
        monkeypatch.setenv("DATABRICKS_TOKEN", "something")
        monkeypatch.setenv(
            "AZURE_STORAGE_CONNECTION_STRING",
            "DefaultEndpointsProtocol=http;AccountName=somebody;AccountKey=c29tZXRoaW5n;"
            f"BlobEndpoint=http://{server.address}/somebody;",
        )
        yield server
        listener.shutdown(socket.SHUT_RDWR)


@pytest.mark.broad
@pytest.mark.parametrize(
    ("url", "requests"),
    [
        ("http://{}/a.csv", 1),
        ("webhdfs://u@{}/logs", 1),
        ("s3://b/a", 1),
        # One for a file of this name, and one for a folder, at the same time.
        ("gs://b/a", 2),
        ("az://b/a", 1),
        ("ssh://{}/logs", 1),
    ],
)
@pytest.mark.parametrize("command", [["report"], ["collect", "--to", "store"]])
def test_a_silent_server_is_asked_once(
    url: str,
    requests: int,
    command: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    with silent_server(monkeypatch) as silent:
        place = url.format(silent.address)
        for _ in range(2):
            # Every client would try again, for minutes.
            assert main([*command, place]) == 2
            (sentence,) = capsys.readouterr().err.splitlines()
            assert sentence.startswith(f"stallscope: {place}: cannot be opened: ")
        assert len(silent.connections) == requests


@pytest.mark.broad
def test_a_silent_workspace_of_databricks_is_given_up_after_its_first_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(databricks, "_ANSWER_SECONDS", 1)
    with silent_server(monkeypatch) as silent:
        with pytest.raises(UnansweredError, match="the workspace does not answer"):
            open_source("databricks:job/1").files()
        # The SDK has asked the host about itself before.
        assert len(silent.connections) == 2


@pytest.mark.broad
def test_a_silent_mlflow_server_is_given_up_after_its_first_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(client._FIRST_REQUEST, "timeout", ("MLFLOW_HTTP_REQUEST_TIMEOUT", 1))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        where = f"http://127.0.0.1:{silent.getsockname()[1]}"
        monkeypatch.setenv("MLFLOW_TRACKING_URI", where)
        with pytest.raises(UnansweredError, match=f"{where} does not answer"):
            open_source("mlflow:" + "0" * 32).files()


def test_only_a_timeout_is_taken_for_a_silent_mlflow_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    # The text of the error has the address.
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{port}/timeout-timed out")
    client.require_answer(client.mlflow_client())


def test_requests_to_mlflow_leave_the_environment_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[dict[str, str]] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            # As another thread of the process sees it while the request is under way.
            seen.append(dict(os.environ))
            self.send_error(404)

        def log_message(self, *_words: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{server.server_port}")
        monkeypatch.delenv("MLFLOW_DISABLE_TELEMETRY", raising=False)
        before = dict(os.environ)
        with pytest.raises(UnreadableError, match="404"):
            open_source("mlflow:" + "0" * 32).files()
        server.shutdown()
    assert seen
    assert all(environment == before for environment in seen)


_PROGRAM = """
import os
from stallscope.collector.mlflow.client import mlflow_client
before = dict(os.environ)
mlflow_client()
from mlflow.telemetry import get_telemetry_client
assert get_telemetry_client() is None
assert dict(os.environ) == before
"""


@pytest.mark.broad
def test_mlflow_sends_no_statistics_in_a_process_of_the_user(tmp_path: Path) -> None:
    """Only the client is told: the environment is the process's, and other threads use it."""
    settings = {"HOME": str(tmp_path), "MLFLOW_TRACKING_URI": "http://127.0.0.1:9"}
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM],
        env={"PATH": os.environ["PATH"], **settings},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr

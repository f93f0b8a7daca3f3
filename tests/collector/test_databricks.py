"""Logs delivered by Databricks clusters: found by job, by cluster and by path."""

from __future__ import annotations

import gzip
import json
import os
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.databricks import TOKEN, Workspace, workspace
from support.step_logs import Job, run_of_job

from stallscope.catalogue.collecting import collect
from stallscope.collector.recorder.step_log.sinks import key_of, records
from stallscope.collector.sources import databricks as source
from stallscope.collector.sources.databricks import DatabricksLogs
from stallscope.collector.sources.files import Files
from stallscope.errors import NotFoundError, StallscopeError, UnreadableError, UsageError
from stallscope.parsers import read
from stallscope.run import Run

pytestmark = pytest.mark.extras

JOB = Job(ranks=2, steps=300)
CLUSTER = "1121-130000-abcdefgh"
OTHER = "1121-130000-otherone"


@pytest.fixture
def fake_workspace(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Workspace]:
    """Run a workspace that the SDK finds, without the developer's settings."""
    for name in [name for name in os.environ if name.startswith(("DATABRICKS_", "ARM_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("DATABRICKS_TOKEN", TOKEN)
    with workspace() as server:
        monkeypatch.setenv("DATABRICKS_HOST", server.host)
        yield server


@pytest.fixture
def original(tmp_path: Path) -> Run:
    return run_of_job(tmp_path / "original", JOB)


def output(path: Path) -> bytes:
    """Return the output of an executor with this step log among its lines."""
    data = path.read_bytes()
    key, name = key_of(data.split(b"\n", 1)[0]), path.name.removesuffix(".steps.csv")
    return "".join(
        f"[1,0]<stderr>:{record}\n"
        for at in range(0, len(data), 3000)
        for record in records(key, name, at, data[at : at + 3000])
    ).encode()


def deliver(fake_workspace: Workspace, tmp_path: Path, root: str, cluster: str = CLUSTER) -> None:
    """Write the delivery of a cluster: each rank's output, cut by the hour, and other files."""
    place = f"{root}/{cluster}"
    application = f"{place}/executor/app-20261121130000-0000"
    for rank, path in enumerate(sorted((tmp_path / "original").glob("*.steps.csv"))):
        lines = output(path).splitlines(keepends=True)
        first, rest = b"".join(lines[:2]), b"".join(lines[2:])
        rolled = f"{application}/{rank}/stderr--2026-11-21--13-00.gz"
        fake_workspace.files[rolled] = gzip.compress(first)
        fake_workspace.files[f"{application}/{rank}/stderr"] = rest
        fake_workspace.files[f"{application}/{rank}/stdout"] = b""
    fake_workspace.files[f"{place}/driver/stdout"] = b"Start training.\n"
    fake_workspace.files[f"{place}/driver/log4j-active.log"] = (
        b"26/11/21 13:00:02 INFO Driver: started\n"
    )
    fake_workspace.files[f"{place}/driver/log4j-2026-11-21-12.log.gz"] = gzip.compress(b"INFO\n")
    fake_workspace.files[f"{place}/eventlog/{cluster}_10_0_0_1/4711/eventlog"] = b'{"Event":"Spark'
    fake_workspace.files[f"{place}/init_scripts/{cluster}_10_0_0_1/0_install.sh.stderr.log"] = (
        b"pip\n"
    )


def delivers_to(kind: str, destination: str) -> dict[str, object]:
    return {"cluster_log_conf": {kind: {"destination": destination}}}


def error_of(text: str) -> StallscopeError:
    """Return the error for a place after checking that it contains no secret anywhere."""
    with pytest.raises(StallscopeError) as raised:
        DatabricksLogs(text).files()
    whole = "".join(traceback.format_exception(raised.value))
    assert TOKEN not in whole
    assert str(raised.value).count("\n") == 0
    return raised.value


@pytest.mark.parametrize(
    ("root", "kind", "destination"),
    [
        ("/cluster-logs", "dbfs", "dbfs:/cluster-logs"),
        ("/Volumes/main/ml/logs", "volumes", "/Volumes/main/ml/logs/"),
        ("/Volumes/main/ml/logs", "volumes", "dbfs:/Volumes/main/ml/logs"),
    ],
)
def test_a_clusters_delivered_logs_are_its_run(
    fake_workspace: Workspace, tmp_path: Path, original: Run, root: str, kind: str, destination: str
) -> None:
    deliver(fake_workspace, tmp_path, root)
    fake_workspace.clusters[CLUSTER] = delivers_to(kind, destination)
    collected = collect([DatabricksLogs(f"databricks:cluster/{CLUSTER}")], tmp_path / "store")
    ((run, _),) = collected.runs
    assert run.steps.equals(original.steps)
    assert run.intervals.equals(original.intervals)
    assert run.problems == ()


def test_a_jobs_run_is_the_logs_of_all_its_clusters(
    fake_workspace: Workspace, tmp_path: Path, original: Run
) -> None:
    deliver(fake_workspace, tmp_path, "/cluster-logs")
    fake_workspace.clusters = {CLUSTER: delivers_to("dbfs", "dbfs:/cluster-logs"), OTHER: {}}
    fake_workspace.runs[42] = {
        "tasks": [
            {"task_key": "prepare", "cluster_instance": {"cluster_id": OTHER}},
            {"task_key": "train", "cluster_instance": {"cluster_id": CLUSTER}},
            {"task_key": "train_again", "cluster_instance": {"cluster_id": CLUSTER}},
            {"task_key": "waiting"},
        ]
    }
    files = DatabricksLogs("databricks:job/42").files()
    assert {file.name.split("/")[0] for file in files} == {CLUSTER}
    assert len(files) == 10
    ((run, _),) = collect([DatabricksLogs("databricks:job/42")], tmp_path / "store").runs
    assert run.steps.equals(original.steps)


def test_tasks_of_a_loop_have_separate_clusters(
    fake_workspace: Workspace, tmp_path: Path, original: Run
) -> None:
    deliver(fake_workspace, tmp_path, "/cluster-logs")
    fake_workspace.clusters[CLUSTER] = delivers_to("dbfs", "dbfs:/cluster-logs")
    fake_workspace.runs[42] = {"tasks": [{"task_key": "all", "run_id": 43, "for_each_task": {}}]}
    fake_workspace.runs[43] = {
        "tasks": [{"task_key": "all", "run_id": 43}],
        "iterations": [{"task_key": "one", "cluster_instance": {"cluster_id": CLUSTER}}],
    }
    fake_workspace.runs[42]["tasks"][0]["for_each_task"] = {
        "inputs": "[]",
        "task": {"task_key": "one"},
    }
    assert len(DatabricksLogs("databricks:job/42").files()) == 10


@pytest.mark.parametrize(
    "place", ["dbfs:/logs/run 1", "dbfs:///logs/run 1/", "/Volumes/main/ml/a+b/run%201"]
)
def test_a_path_is_everything_below_it(
    fake_workspace: Workspace, tmp_path: Path, original: Run, place: str
) -> None:
    fake_workspace.put(tmp_path / "original", "/" + place.removeprefix("dbfs:").strip("/"))
    (run,) = read(DatabricksLogs(place))
    assert run.steps.equals(original.steps)
    name = f"{place.rstrip('/')}/rank-00001.0.0.steps.csv"
    (file,) = DatabricksLogs(name).files()
    assert file.name == "rank-00001.0.0.steps.csv"
    assert file.read() == (tmp_path / "original" / file.name).read_bytes()


@pytest.mark.parametrize("root", ["/logs", "/Volumes/main/ml/logs"])
@pytest.mark.parametrize("ranges", [True, False])
def test_parts_of_files_are_read(fake_workspace: Workspace, root: str, ranges: bool) -> None:
    data = os.urandom(3_000_000)
    fake_workspace.ranges = ranges
    fake_workspace.files[f"{root}/large"] = data
    (file,) = DatabricksLogs(f"dbfs:{root}").files()
    assert file.size == len(data)
    for start, end in ((0, None), (0, 10), (999_999, 2_500_000), (2_999_999, None), (5, 5)):
        assert file.read(start, end) == data[start:end]


def test_collecting_again_fetches_only_new_bytes(
    fake_workspace: Workspace, tmp_path: Path, original: Run
) -> None:
    name = "rank-00000.0.0.steps.csv"
    data = (tmp_path / "original" / name).read_bytes()
    half = data.index(b"\n", len(data) // 2) + 1
    fake_workspace.files[f"/Volumes/a/b/c/{name}"] = data[:half]
    place = DatabricksLogs("/Volumes/a/b/c")
    collect([place], tmp_path / "store")
    fake_workspace.files[f"/Volumes/a/b/c/{name}"] = data
    fake_workspace.asked.clear()
    ((run, _),) = collect([place], tmp_path / "store").runs
    assert run.steps.num_rows == JOB.steps
    read_from = [asked for method, _, asked in fake_workspace.asked if method == "GET" and asked]
    assert read_from[-1] == f"bytes={half}-{len(data) - 1}"


def test_a_cluster_that_delivers_into_a_bucket_is_read_there(
    fake_workspace: Workspace, tmp_path: Path, original: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    class Bucket(Files):
        def __init__(self, text: str) -> None:
            asked.append(text)
            super().__init__(str(tmp_path / "original"))

    monkeypatch.setattr(source, "S3Files", Bucket)
    fake_workspace.clusters[CLUSTER] = delivers_to("s3", "s3://bucket/logs/")
    fake_workspace.runs[1] = {"cluster_instance": {"cluster_id": CLUSTER}}
    (run,) = read(DatabricksLogs("databricks:job/1"))
    assert run.steps.equals(original.steps)
    assert asked == [f"s3://bucket/logs/{CLUSTER}"]


def test_event_logs_are_not_even_opened(
    fake_workspace: Workspace, tmp_path: Path, original: Run
) -> None:
    deliver(fake_workspace, tmp_path, "/cluster-logs")
    assert not [f for f in DatabricksLogs("dbfs:/cluster-logs").files() if "event" in f.name]


@pytest.mark.parametrize(
    "text", ["databricks:", "databricks:job/abc", "databricks:run/1", "databricks:cluster/a/b"]
)
def test_invalid_places(text: str) -> None:
    with pytest.raises(UsageError, match=r"write databricks:job/RUN_ID or databricks:cluster/"):
        DatabricksLogs(text)


def test_unknown_ids(fake_workspace: Workspace) -> None:
    assert isinstance(error_of("databricks:job/7"), NotFoundError)
    assert "there is no run 7 of a job" in str(error_of("databricks:job/7"))
    gone = error_of(f"databricks:cluster/{CLUSTER}")
    assert isinstance(gone, NotFoundError)
    assert "name the folder of its logs" in str(gone)
    assert str(error_of("dbfs:/nowhere")) == "dbfs:/nowhere: there is no dbfs:/nowhere"
    assert "there is no /Volumes/a/b/c" in str(error_of("/Volumes/a/b/c"))


def test_a_cluster_without_delivered_logs(fake_workspace: Workspace) -> None:
    fake_workspace.clusters[CLUSTER] = {}
    assert "set a destination under Advanced options" in str(
        error_of(f"databricks:cluster/{CLUSTER}")
    )
    fake_workspace.clusters[CLUSTER] = delivers_to("dbfs", "dbfs:/cluster-logs")
    fake_workspace.runs[1] = {
        "tasks": [{"task_key": "a", "cluster_instance": {"cluster_id": CLUSTER}}]
    }
    assert f"there are no logs at dbfs:/cluster-logs/{CLUSTER} yet" in str(
        error_of("databricks:job/1")
    )
    fake_workspace.runs[2] = {"tasks": [{"task_key": "serverless"}]}
    assert "this run has no cluster" in str(error_of("databricks:job/2"))


def test_unreadable_files(fake_workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_workspace.files["/secret/x"] = b"1"
    fake_workspace.locked = "/secret"
    refused = error_of("dbfs:/secret")
    assert str(refused) == "dbfs:/secret: the workspace does not allow it: No READ on /secret"
    # A second attempt would not help, and fetching makes none.
    assert isinstance(refused.__cause__, PermissionError)
    monkeypatch.setenv("DATABRICKS_TOKEN", "dapi-another")
    error = str(error_of("dbfs:/secret"))
    assert "the workspace rejects the credentials" in error
    assert "dapi" not in error


def test_no_workspace_is_configured(
    fake_workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DATABRICKS_HOST")
    monkeypatch.delenv("DATABRICKS_TOKEN")
    monkeypatch.setenv("DATABRICKS_AUTH_TYPE", "pat")
    assert "no workspace and credentials are configured" in str(error_of("databricks:job/1"))


@pytest.mark.broad
def test_a_workspace_that_does_not_answer(
    fake_workspace: Workspace, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(source, "_RETRY_SECONDS", 1)
    monkeypatch.setenv("DATABRICKS_HOST", "http://127.0.0.1:9")
    error = error_of("databricks:job/1")
    assert isinstance(error, UnreadableError)
    assert "the workspace does not answer" in str(error)
    assert TOKEN not in caplog.text


def test_a_file_deleted_while_it_is_read(fake_workspace: Workspace) -> None:
    for root in ("/logs", "/Volumes/a/b"):
        fake_workspace.files[f"{root}/x"] = b"123"
        (file,) = DatabricksLogs(f"dbfs:{root}").files()
        del fake_workspace.files[f"{root}/x"]
        with pytest.raises(NotFoundError, match="the file was removed"):
            file.read()


def test_credentials_are_not_in_collected_files(
    fake_workspace: Workspace, tmp_path: Path, original: Run
) -> None:
    fake_workspace.put(tmp_path / "original", "/logs")
    collect([DatabricksLogs("dbfs:/logs")], tmp_path / "store")
    kept = [path for path in (tmp_path / "store").rglob("*") if path.is_file()]
    assert kept
    assert not [path for path in kept if TOKEN.encode() in path.read_bytes()]
    (manifest,) = (tmp_path / "store").glob("*/manifest.json")
    assert json.loads(manifest.read_text())

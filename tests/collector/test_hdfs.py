"""Logs in HDFS are read over HTTP, and a missing Hadoop library is reported."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.places import refusal, sentences
from support.step_logs import Job, write_job
from support.webhdfs import Cluster, cluster

from stallscope.catalogue.collecting import collect
from stallscope.collector.source_kinds import open_source
from stallscope.collector.sources.files import Files
from stallscope.collector.sources.source import SourceFile
from stallscope.errors import NotFoundError, UnreadableError
from stallscope.opening import open_run

pytestmark = pytest.mark.usefixtures("one_attempt")

JOB = Job(ranks=2, steps=40)


@pytest.fixture(autouse=True)
def _no_user_of_hadoop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HADOOP_USER_NAME", raising=False)


@pytest.fixture
def fake_cluster() -> Iterator[Cluster]:
    with cluster() as server:
        yield server


@pytest.fixture
def logs(tmp_path: Path, fake_cluster: Cluster) -> Path:
    """Make a local folder with a run, and the same in a folder of the cluster with an unusual name."""
    folder = tmp_path / "logs"
    write_job(folder, JOB)
    fake_cluster.put(folder, "/logs/run a+1")
    return folder


def url(fake_cluster: Cluster, path: str = "/logs/run a+1", user: str = "train@") -> str:
    return f"webhdfs://{user}127.0.0.1:{fake_cluster.port}{path}"


def first(place: str) -> SourceFile:
    return open_source(place).files()[0]


def test_a_run_in_hdfs_equals_the_local_one(logs: Path, fake_cluster: Cluster) -> None:
    remote, local = open_run(url(fake_cluster)), open_run(str(logs))
    assert remote.steps.equals(local.steps)
    assert remote.logs == local.logs
    assert remote.source == url(fake_cluster)


def test_files_have_names_sizes_and_versions(logs: Path, fake_cluster: Cluster) -> None:
    fake_cluster.write("/logs/run a+1/deep/er/stdout", b"1\n")
    files = open_source(url(fake_cluster, "/logs")).files()
    local = [(f"run a+1/{path.name}", path.stat().st_size) for path in logs.iterdir()]
    named = sorted([*local, ("run a+1/deep/er/stdout", 2)])
    assert sorted((file.name, file.size) for file in files) == named
    assert {file.where for file in files} == {
        url(fake_cluster, f"/logs/{name}") for name, _ in named
    }
    assert all(file.version for file in files)


def test_whole_files_and_parts_are_read(logs: Path, fake_cluster: Cluster) -> None:
    file = first(url(fake_cluster))
    data = (logs / file.name).read_bytes()
    assert file.read() == data
    assert file.read(100) == data[100:]
    assert file.read(100, 164) == data[100:164]
    assert file.read(100, len(data) + 100) == data[100:]
    assert file.read(len(data), len(data)) == b""


def test_collecting_again_fetches_only_new_bytes(
    logs: Path, fake_cluster: Cluster, tmp_path: Path
) -> None:
    log = sorted(logs.glob("*.csv"))[1]
    whole, path = log.read_bytes(), f"/logs/run a+1/{log.name}"
    half = whole.index(b"\n", len(whole) // 2) + 1
    fake_cluster.write(path, whole[:half])
    assert not collect([open_source(url(fake_cluster))], tmp_path / "store").unchanged
    fake_cluster.asked.clear()
    assert collect([open_source(url(fake_cluster))], tmp_path / "store").unchanged
    assert "OPEN" not in {operation for _, operation, _, _ in fake_cluster.asked}
    fake_cluster.write(path, whole)
    fake_cluster.asked.clear()
    ((run, _),) = collect([open_source(url(fake_cluster))], tmp_path / "store").runs
    assert run.steps.equals(open_run(str(logs)).steps)
    opened = [
        (path, offset) for _, operation, path, offset in fake_cluster.asked if operation == "OPEN"
    ]
    # Its end is compared before more is added to it.
    assert opened == [(path, 0), (path, half)]


def test_patterns_name_files_and_folders(logs: Path, fake_cluster: Cluster) -> None:
    names = [file.name for file in open_source(url(fake_cluster, "/logs/*/rank-0000[1].*")).files()]
    assert names == ["run a+1/rank-00001.0.0.steps.csv"]
    assert len(open_source(url(fake_cluster, "/lo*")).files()) == 2
    place = url(fake_cluster, "/logs/c*")
    assert refusal(place) == f"{place}: nothing matches"


def test_a_missing_folder_is_named(logs: Path, fake_cluster: Cluster) -> None:
    place = url(fake_cluster, "/nothing")
    assert refusal(place) == f"{place}: no such file or folder"
    file = first(url(fake_cluster))
    fake_cluster.files.clear()
    with pytest.raises(NotFoundError, match="the file was removed"):
        file.read()


def test_the_user_is_hadoops_default(
    logs: Path, fake_cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOGNAME", "somebody")
    sentence = refusal(url(fake_cluster, user=""))
    assert "access denied (Permission denied: user=somebody, access=READ" in sentence
    assert "HADOOP_USER_NAME" in sentence
    monkeypatch.setenv("HADOOP_USER_NAME", "train")
    assert open_source(url(fake_cluster, user="")).files()
    assert "user=other" in refusal(url(fake_cluster, user="other@"))


def test_a_datanodes_error_is_not_read_as_a_log(logs: Path, fake_cluster: Cluster) -> None:
    file = first(url(fake_cluster))
    fake_cluster.lost = True
    with pytest.raises(UnreadableError, match="cannot be read: Could not obtain block"):
        file.read()
    with pytest.raises(UnreadableError, match="cannot be read: Could not obtain block"):
        file.read(0, 64)


def test_a_cluster_with_kerberos_is_an_error_of_one_sentence(
    logs: Path, fake_cluster: Cluster
) -> None:
    fake_cluster.kerberos = True
    assert "it requires a login; for Kerberos, use hdfs://" in refusal(url(fake_cluster))


def test_a_password_in_the_url_is_in_no_message(
    logs: Path, fake_cluster: Cluster, tmp_path: Path
) -> None:
    secret = "nobody-may-ever-see-this"
    place = url(fake_cluster, "/nothing", f"train:{secret}@")
    for address in (place, place.replace(str(fake_cluster.port), "9")):
        assert secret not in refusal(address, shown=address.replace(f":{secret}", ""))


def test_an_unreachable_server_is_an_error_of_one_sentence(
    logs: Path, fake_cluster: Cluster
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
    assert "no WebHDFS answers there" in refusal(f"webhdfs://127.0.0.1:{port}/logs")


def test_a_silent_server_is_an_error_of_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Files, "timeout_seconds", 1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        assert "no data arrived for 1 s; check the address" in refusal(
            f"webhdfs://127.0.0.1:{port}/logs"
        )


@pytest.mark.broad
def test_a_missing_hadoop_library_is_an_error_of_one_sentence() -> None:
    """A separate process: the search for the library happens once per process."""
    nothing = {"ARROW_LIBHDFS_DIR": "/nothing", "HADOOP_HOME": "/nothing", "JAVA_HOME": "/nothing"}
    process = subprocess.run(
        [sys.executable, "-m", "stallscope", "report", "hdfs://namenode:8020/logs"],
        env={**os.environ, **nothing},
        capture_output=True,
        text=True,
    )
    assert process.returncode == 2
    (message,) = sentences(process.stderr)
    assert "hdfs://namenode:8020/logs: cannot be opened: Hadoop's libhdfs" in message
    assert "write webhdfs://USER@NAMENODE:9870/path" in message

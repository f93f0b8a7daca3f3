"""Logs in HDFS are read over HTTP, and where Hadoop's own library is missing that is said."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.places import refusal
from support.step_logs import Job, write_job
from support.webhdfs import Cluster, cluster

from stallscope.catalogue.collecting import collect
from stallscope.collector.registry import open_source
from stallscope.collector.sources.base import SourceFile
from stallscope.collector.sources.files import Files
from stallscope.errors import NotFoundError, UnreadableError
from stallscope.runs import open_run

pytestmark = pytest.mark.usefixtures("one_attempt")

JOB = Job(ranks=2, steps=40)


@pytest.fixture(autouse=True)
def _no_user_of_hadoop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HADOOP_USER_NAME", raising=False)


@pytest.fixture
def held() -> Iterator[Cluster]:
    with cluster() as there:
        yield there


@pytest.fixture
def logs(tmp_path: Path, held: Cluster) -> Path:
    """A local folder with a run, and the same in a folder of the cluster whose name is unusual."""
    folder = tmp_path / "logs"
    write_job(folder, JOB)
    held.put(folder, "/logs/run a+1")
    return folder


def url(held: Cluster, path: str = "/logs/run a+1", user: str = "train@") -> str:
    return f"webhdfs://{user}127.0.0.1:{held.port}{path}"


def first(place: str) -> SourceFile:
    return open_source(place).files()[0]


def test_a_run_in_hdfs_equals_the_local_one(logs: Path, held: Cluster) -> None:
    there, here = open_run(url(held)), open_run(str(logs))
    assert there.steps.equals(here.steps)
    assert there.logs == here.logs
    assert there.source == url(held)


def test_files_have_names_sizes_and_versions(logs: Path, held: Cluster) -> None:
    held.write("/logs/run a+1/deep/er/stdout", b"1\n")
    files = open_source(url(held, "/logs")).files()
    local = [(f"run a+1/{path.name}", path.stat().st_size) for path in logs.iterdir()]
    named = sorted([*local, ("run a+1/deep/er/stdout", 2)])
    assert sorted((file.name, file.size) for file in files) == named
    assert {file.where for file in files} == {url(held, f"/logs/{name}") for name, _ in named}
    assert all(file.version for file in files)


def test_whole_files_and_parts_are_read(logs: Path, held: Cluster) -> None:
    file = first(url(held))
    data = (logs / file.name).read_bytes()
    assert file.read() == data
    assert file.read(100) == data[100:]
    assert file.read(100, 164) == data[100:164]
    assert file.read(100, len(data) + 100) == data[100:]
    assert file.read(len(data), len(data)) == b""


def test_collecting_again_fetches_only_what_is_new(
    logs: Path, held: Cluster, tmp_path: Path
) -> None:
    log = sorted(logs.glob("*.csv"))[1]
    whole, path = log.read_bytes(), f"/logs/run a+1/{log.name}"
    half = whole.index(b"\n", len(whole) // 2) + 1
    held.write(path, whole[:half])
    assert not collect([open_source(url(held))], tmp_path / "store").unchanged
    held.asked.clear()
    assert collect([open_source(url(held))], tmp_path / "store").unchanged
    assert "OPEN" not in {operation for _, operation, _, _ in held.asked}
    held.write(path, whole)
    held.asked.clear()
    ((run, _),) = collect([open_source(url(held))], tmp_path / "store").runs
    assert run.steps.equals(open_run(str(logs)).steps)
    opened = [(path, offset) for _, operation, path, offset in held.asked if operation == "OPEN"]
    # Its end is compared before more is added to it.
    assert opened == [(path, 0), (path, half)]


def test_patterns_name_files_and_folders(logs: Path, held: Cluster) -> None:
    names = [file.name for file in open_source(url(held, "/logs/*/rank-0000[1].*")).files()]
    assert names == ["run a+1/rank-00001.0.0.steps.csv"]
    assert len(open_source(url(held, "/lo*")).files()) == 2
    place = url(held, "/logs/c*")
    assert refusal(place) == f"{place}: nothing matches"


def test_what_is_not_there_is_said(logs: Path, held: Cluster) -> None:
    place = url(held, "/nothing")
    assert refusal(place) == f"{place}: there is no such file or folder"
    file = first(url(held))
    held.files.clear()
    with pytest.raises(NotFoundError, match="the file was removed"):
        file.read()


def test_the_user_is_whom_hadoop_would_take(
    logs: Path, held: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOGNAME", "somebody")
    sentence = refusal(url(held, user=""))
    assert "access denied (Permission denied: user=somebody, access=READ" in sentence
    assert "HADOOP_USER_NAME" in sentence
    monkeypatch.setenv("HADOOP_USER_NAME", "train")
    assert open_source(url(held, user="")).files()
    assert "user=other" in refusal(url(held, user="other@"))


def test_what_a_datanode_says_of_an_error_is_no_log(logs: Path, held: Cluster) -> None:
    file = first(url(held))
    held.lost = True
    with pytest.raises(UnreadableError, match="cannot be read: Could not obtain block"):
        file.read()
    with pytest.raises(UnreadableError, match="cannot be read: Could not obtain block"):
        file.read(0, 64)


def test_a_cluster_with_kerberos_is_one_sentence(logs: Path, held: Cluster) -> None:
    held.kerberos = True
    assert "it requires a login; for Kerberos, use hdfs://" in refusal(url(held))


def test_a_password_in_the_url_is_in_no_message(logs: Path, held: Cluster, tmp_path: Path) -> None:
    secret = "nobody-may-ever-see-this"
    place = url(held, "/nothing", f"train:{secret}@")
    for there in (place, place.replace(str(held.port), "9")):
        assert secret not in refusal(there, shown=there.replace(f":{secret}", ""))


def test_a_server_that_is_not_there_is_one_sentence(logs: Path, held: Cluster) -> None:
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        port = nobody.getsockname()[1]
    assert "no WebHDFS answers there" in refusal(f"webhdfs://127.0.0.1:{port}/logs")


def test_a_server_that_is_silent_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Files, "timeout_seconds", 1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        assert "no WebHDFS answers there" in refusal(f"webhdfs://127.0.0.1:{port}/logs")


def test_hadoop_s_own_library_that_is_missing_is_one_sentence() -> None:
    """In a process of its own: what was looked for once is not looked for again."""
    nothing = {"ARROW_LIBHDFS_DIR": "/nothing", "HADOOP_HOME": "/nothing", "JAVA_HOME": "/nothing"}
    process = subprocess.run(
        [sys.executable, "-m", "stallscope", "report", "hdfs://namenode:8020/logs"],
        env={**os.environ, **nothing},
        capture_output=True,
        text=True,
    )
    assert process.returncode == 2
    assert process.stderr.count("\n") == 1
    assert "hdfs://namenode:8020/logs: cannot be opened: Hadoop's libhdfs" in process.stderr
    assert "write webhdfs://USER@NAMENODE:9870/path" in process.stderr

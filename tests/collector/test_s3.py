"""Logs in a store that speaks S3 are read as local ones are, and what goes wrong is one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.services import S3, tool, use_s3
from support.step_logs import Job, write_job

from stallscope.collector.sources.base import Source, SourceFile
from stallscope.collector.sources.registry import open_source
from stallscope.errors import NotFoundError, StallscopeError, UnreadableError
from stallscope.runs import open_run

pytestmark = pytest.mark.services

JOB = Job(ranks=3, steps=40, epochs=2)
SECRET = "nobody-may-ever-see-this-secret"


@pytest.fixture
def logs(tmp_path: Path, s3_server: S3) -> Path:
    """A local folder with a run, and the same below ``logs/run-a`` of the bucket."""
    folder = tmp_path / "logs" / "run-a"
    write_job(folder, JOB)
    s3_server.put(folder, "logs/run-a")
    return folder


def names(source: Source) -> list[str]:
    return [file.name for file in source.files()]


def refused(text: str) -> str:
    """The one sentence that a place is refused with."""
    with pytest.raises(StallscopeError) as raised:
        open_source(text).files()
    sentence = str(raised.value)
    assert "\n" not in sentence
    return sentence


def test_a_run_in_a_bucket_equals_the_local_one(logs: Path, s3_server: S3) -> None:
    there, here = open_run(s3_server.url("logs/run-a")), open_run(str(logs))
    assert there.steps.equals(here.steps)
    assert there.intervals.equals(here.intervals)
    assert there.logs == here.logs
    assert there.problems == here.problems
    assert there.source == s3_server.url("logs/run-a")


def test_files_have_names_sizes_and_versions(logs: Path, s3_server: S3) -> None:
    files = open_source(s3_server.url("logs")).files()
    local = sorted(logs.iterdir())
    assert [file.name for file in files] == [f"run-a/{path.name}" for path in local]
    assert [file.size for file in files] == [path.stat().st_size for path in local]
    assert [file.where for file in files] == [s3_server.url(f"logs/{file.name}") for file in files]
    assert len({file.version for file in files} - {""}) == len(local)


def test_whole_files_and_parts_are_read(logs: Path, s3_server: S3) -> None:
    (file,) = open_source(s3_server.url("logs/run-a/rank-00001.*")).files()
    data = (logs / file.name).read_bytes()
    assert file.read() == data
    assert file.read(100) == data[100:]
    assert file.read(100, 164) == data[100:164]
    assert file.read(0, 64) == data[:64]
    assert file.read(100, len(data) + 100) == data[100:]


def test_a_file_that_is_written_again_has_another_version(logs: Path, s3_server: S3) -> None:
    def only() -> SourceFile:
        (file,) = open_source(s3_server.url("logs/run-a/rank-00000*")).files()
        return file

    before = only()
    assert only().version == before.version
    path = logs / before.name
    path.write_bytes(path.read_bytes() + b"more\n")
    s3_server.put(logs, "logs/run-a")
    assert only().version != before.version
    assert only().size == before.size + 5


def test_patterns_name_files_and_folders(logs: Path, s3_server: S3) -> None:
    s3_server.put(logs, "logs/run-b")
    everything = [f"run-{run}/{path.name}" for run in "ab" for path in sorted(logs.iterdir())]
    assert names(open_source(s3_server.url("logs/*"))) == everything
    assert names(open_source(s3_server.url("logs/run-[b]"))) == everything[len(everything) // 2 :]
    assert names(open_source(s3_server.url("logs/*/rank-0000?.0.0.steps.csv"))) == [
        name for name in everything if "rank" in name
    ]
    assert refused(s3_server.url("logs/c*")) == f"{s3_server.url('logs/c*')}: nothing matches"


def test_a_whole_bucket_is_a_place(logs: Path, s3_server: S3) -> None:
    assert names(open_source(f"s3://{s3_server.bucket}")) == [
        f"logs/run-a/{path.name}" for path in sorted(logs.iterdir())
    ]


def test_placeholders_of_folders_are_no_files(logs: Path, s3_server: S3, tmp_path: Path) -> None:
    import s3fs

    files = s3fs.S3FileSystem(skip_instance_cache=True)
    for folder in ("logs/run-a/", "logs/run-a/plots/"):
        files.pipe_file(s3_server.url(folder), b"")
    assert names(open_source(s3_server.url("logs/run-a"))) == sorted(p.name for p in logs.iterdir())


@pytest.mark.parametrize("place", ["nothing", "logs/run", "logs/run-a/rank-00009.0.0.steps.csv"])
def test_what_is_not_there_is_said(logs: Path, s3_server: S3, place: str) -> None:
    url = s3_server.url(place)
    assert refused(url) == f"{url}: there is no such file or folder"


@pytest.mark.parametrize("path", ["", "/logs", "/logs/*.csv"])
def test_a_bucket_that_is_not_there_is_said(s3_server: S3, path: str) -> None:
    with pytest.raises(NotFoundError, match=r"no such file or folder|nothing matches"):
        open_source(f"s3://stallscope-nothing{path}").files()


def test_a_file_that_has_gone_since_is_said(logs: Path, s3_server: S3) -> None:
    import s3fs

    file, *_ = open_source(s3_server.url("logs/run-a")).files()
    s3fs.S3FileSystem(skip_instance_cache=True).rm(s3_server.url("logs"), recursive=True)
    with pytest.raises(NotFoundError, match=f"{file.where}: the file has gone"):
        file.read()


@pytest.mark.parametrize("name", ["AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID"])
@pytest.mark.parametrize("path", ["", "/logs/run-a", "/logs/run-*"])
def test_wrong_credentials_are_one_sentence_without_them(
    logs: Path, s3_server: S3, monkeypatch: pytest.MonkeyPatch, name: str, path: str
) -> None:
    import s3fs

    monkeypatch.setenv(name, SECRET)
    s3fs.S3FileSystem.clear_instance_cache()
    sentence = refused(f"s3://{s3_server.bucket}{path}")
    assert sentence.startswith(f"s3://{s3_server.bucket}{path}: cannot be opened: ")
    assert "access is refused" in sentence
    assert "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY" in sentence
    assert SECRET not in sentence
    assert s3_server.secret not in sentence


def test_credentials_that_end_while_files_are_read_are_one_sentence(
    logs: Path, s3_server: S3, monkeypatch: pytest.MonkeyPatch
) -> None:
    import s3fs

    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    s3fs.S3FileSystem.clear_instance_cache()
    place = open_source(s3_server.url("logs/run-a"))
    monkeypatch.setattr(place, "_found", lambda fs, path: [_file_at(place, fs, path)])
    (file,) = place.files()
    with pytest.raises(UnreadableError, match="cannot be read: access is refused") as raised:
        file.read()
    assert SECRET not in str(raised.value)


def _file_at(place: Source, file_system: object, path: str) -> SourceFile:
    name = "rank-00000.0.0.steps.csv"
    return place._file(file_system, name, f"{path}/{name}", {"size": 100})  # type: ignore[attr-defined]


def test_a_bucket_of_somebody_else_is_one_sentence(s3_server: S3) -> None:
    assert "access is refused" in refused("s3://somebody-elses/logs")
    assert "access is refused" in refused("s3://somebody-elses")


def test_no_credentials_are_one_sentence(s3_server: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    import s3fs

    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    s3fs.S3FileSystem.clear_instance_cache()
    sentence = refused(s3_server.url("logs"))
    assert "there are no keys; they come from AWS_ACCESS_KEY_ID" in sentence


def test_credentials_in_the_url_are_in_no_message(s3_server: S3) -> None:
    sentence = refused(f"s3://AKIAKEY:{SECRET}@{s3_server.bucket}/logs")
    assert SECRET not in sentence


def test_a_server_that_has_gone_is_one_sentence(
    tmp_path: Path, services_side: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_job(tmp_path / "logs", JOB)
    with tool("s3").s3_server(tmp_path / "s3") as service:
        use_s3(service, monkeypatch)
        bucket = S3(service.endpoint, service.bucket, service.key_id, service.secret)
        bucket.put(tmp_path / "logs", "logs")
        file, *_ = open_source(bucket.url("logs")).files()
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    sentence = refused(bucket.url("logs"))
    assert "cannot be opened: Could not connect to the endpoint" in sentence
    assert "cannot be opened" in refused(f"s3://{bucket.bucket}")
    with pytest.raises(UnreadableError, match="cannot be read: Could not connect"):
        file.read()

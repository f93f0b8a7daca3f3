"""What is S3's own: keys of several kinds, placeholders of folders, buckets of others."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.step_logs import Job, write_job
from support.stores import SECRET, Bucket

from stallscope.collector.registry import open_source
from stallscope.collector.sources.base import Source, SourceFile
from stallscope.errors import StallscopeError, UnreadableError

pytestmark = pytest.mark.services

JOB = Job(ranks=3, steps=40, epochs=2)


@pytest.fixture
def logs(tmp_path: Path, s3_bucket: Bucket) -> Path:
    """A local folder with a run, and the same below ``logs/run-a`` of the bucket."""
    folder = tmp_path / "logs" / "run-a"
    write_job(folder, JOB)
    s3_bucket.put(folder, "logs/run-a")
    return folder


def refused(text: str) -> str:
    """The one sentence that a place is refused with."""
    with pytest.raises(StallscopeError) as raised:
        open_source(text).files()
    sentence = str(raised.value)
    assert "\n" not in sentence
    return sentence


def test_placeholders_of_folders_are_no_files(logs: Path, s3_bucket: Bucket) -> None:
    client = s3_bucket.store.client()
    for folder in ("logs/run-a/", "logs/run-a/plots/"):
        client.pipe_file(s3_bucket.url(folder), b"")
    files = open_source(s3_bucket.url("logs/run-a")).files()
    assert [file.name for file in files] == sorted(path.name for path in logs.iterdir())


@pytest.mark.parametrize("name", ["AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID"])
def test_a_wrong_key_is_one_sentence_without_it(
    logs: Path, s3_bucket: Bucket, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    s3_bucket.store.use(monkeypatch, **{name: SECRET})
    sentence = refused(s3_bucket.url("logs/run-a"))
    assert sentence.startswith(f"{s3_bucket.url('logs/run-a')}: cannot be opened: ")
    assert "access denied" in sentence
    assert "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY" in sentence
    assert SECRET not in sentence
    assert s3_bucket.store.secret not in sentence


def test_credentials_that_end_while_files_are_read_are_one_sentence(
    logs: Path, s3_bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3_bucket.store.use(monkeypatch, AWS_SECRET_ACCESS_KEY=SECRET)
    place = open_source(s3_bucket.url("logs/run-a"))
    monkeypatch.setattr(place, "_list", lambda fs, path: [_file_at(place, fs, path)])
    (file,) = place.files()
    with pytest.raises(UnreadableError, match="cannot be read: access denied") as raised:
        file.read()
    assert SECRET not in str(raised.value)


def _file_at(place: Source, file_system: object, path: str) -> SourceFile:
    name = "rank-00000.0.0.steps.csv"
    return place._file(file_system, name, f"{path}/{name}", {"size": 100})  # type: ignore[attr-defined]


def test_a_bucket_of_somebody_else_is_one_sentence(s3_bucket: Bucket) -> None:
    assert "access denied" in refused("s3://somebody-elses/logs")
    assert "access denied" in refused("s3://somebody-elses")


def test_no_credentials_are_one_sentence(
    s3_bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    s3_bucket.store.forget()
    sentence = refused(s3_bucket.url("logs"))
    assert "there are no keys; they come from AWS_ACCESS_KEY_ID" in sentence


def test_credentials_in_the_url_are_in_no_message(s3_bucket: Bucket) -> None:
    sentence = refused(f"s3://AKIAKEY:{SECRET}@{s3_bucket.name}/logs")
    assert SECRET not in sentence

"""Details of S3: kinds of keys, placeholders of folders, foreign buckets."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.places import refusal
from support.step_logs import Job
from support.stores import SECRET, Bucket, put_job

from stallscope.collector.source_kinds import open_source
from stallscope.collector.sources.source import Source, SourceFile
from stallscope.errors import UnreadableError

pytestmark = pytest.mark.services

JOB = Job(ranks=3, steps=40, epochs=2)


@pytest.fixture
def logs(tmp_path: Path, s3_bucket: Bucket) -> Path:
    """Make a local folder with a run, and the same below ``logs/run-a`` of the bucket."""
    return put_job(tmp_path, JOB, s3_bucket)


def test_placeholders_of_folders_are_not_files(logs: Path, s3_bucket: Bucket) -> None:
    client = s3_bucket.store.client()
    for folder in ("logs/run-a/", "logs/run-a/plots/"):
        client.pipe_file(s3_bucket.url(folder), b"")
    files = open_source(s3_bucket.url("logs/run-a")).files()
    assert [file.name for file in files] == sorted(path.name for path in logs.iterdir())


@pytest.mark.parametrize("name", ["AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID"])
def test_a_wrong_key_is_an_error_that_does_not_show_it(
    logs: Path, s3_bucket: Bucket, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    s3_bucket.store.use(monkeypatch, **{name: SECRET})
    sentence = refusal(s3_bucket.url("logs/run-a"))
    assert sentence.startswith(f"{s3_bucket.url('logs/run-a')}: cannot be opened: ")
    assert "access denied" in sentence
    assert "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY" in sentence
    assert SECRET not in sentence
    assert s3_bucket.store.secret not in sentence


def test_credentials_that_expire_while_files_are_read_are_an_error_of_one_sentence(
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


def test_a_foreign_bucket_is_an_error_of_one_sentence(s3_bucket: Bucket) -> None:
    assert "access denied" in refusal("s3://somebody-elses/logs")
    assert "access denied" in refusal("s3://somebody-elses")


def test_no_credentials_are_an_error_of_one_sentence(
    s3_bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    s3_bucket.store.forget()
    sentence = refusal(s3_bucket.url("logs"))
    assert "there are no keys; they come from AWS_ACCESS_KEY_ID" in sentence


def test_credentials_in_the_url_are_in_no_message(s3_bucket: Bucket) -> None:
    place = f"s3://AKIAKEY:{SECRET}@{s3_bucket.name}/logs"
    # botocore's underlying error repeats the URL.
    shown = f"s3://AKIAKEY@{s3_bucket.name}/logs"
    sentence = refusal(place, shown=shown, causes_too=False)
    assert SECRET not in sentence

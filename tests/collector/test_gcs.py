"""Details of Google Cloud Storage: logins, foreign buckets, placeholders of folders."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.google import ACCOUNT
from support.places import refusal
from support.stores import Bucket

from stallscope.collector.source_kinds import open_source

pytestmark = [pytest.mark.services, pytest.mark.usefixtures("one_attempt")]


def test_placeholders_of_folders_are_not_files(gs_bucket: Bucket) -> None:
    client = gs_bucket.store.client()
    for name in ("run-a/", "run-a/plots/", "run-a/rank-0.csv"):
        client.pipe_file(gs_bucket.url(name), b"")
    files = open_source(gs_bucket.url("run-a")).files()
    assert [file.name for file in files] == ["rank-0.csv"]


def test_both_names_of_the_protocol_mean_the_same(gs_bucket: Bucket) -> None:
    gs_bucket.store.client().pipe_file(gs_bucket.url("run-a/rank-0.csv"), b"123")
    (file,) = open_source(f"gcs://{gs_bucket.name}/run-a").files()
    assert (file.name, file.read()) == ("rank-0.csv", b"123")


def test_a_foreign_bucket_is_an_error_of_one_sentence(gs_bucket: Bucket) -> None:
    for url in ("gs://somebody-elses", "gs://somebody-elses/logs", "gs://somebody-elses/logs-*"):
        assert f"access denied ({ACCOUNT} does not have storage.objects.list" in refusal(
            url, "cannot be opened: "
        )


def test_no_login_is_an_error_of_one_sentence(
    gs_bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS")
    gs_bucket.store.forget()
    sentence = refusal(gs_bucket.url("logs"), "cannot be opened: ")
    assert "access denied (Anonymous caller does not have storage.objects.list" in sentence
    assert "'gcloud auth application-default login'" in sentence


@pytest.mark.parametrize("content", [None, "", "{}", '{"type": "service_account"}', "secret"])
def test_a_bad_key_file_is_an_error_of_one_sentence(
    gs_bucket: Bucket, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: str | None
) -> None:
    key_file = tmp_path / "key.json"
    if content is not None:
        key_file.write_text(content)
    gs_bucket.store.use(monkeypatch, GOOGLE_APPLICATION_CREDENTIALS=str(key_file))
    sentence = refusal(gs_bucket.url("logs"), "cannot be opened: ")
    assert "the login is invalid (" in sentence
    assert "it comes from GOOGLE_APPLICATION_CREDENTIALS" in sentence
    assert "secret" not in sentence


def test_a_user_s_own_login_is_used(
    gs_bucket: Bucket, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """``gcloud auth application-default login`` writes its login into the folder of its settings."""
    service = gs_bucket.store.service
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS")
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    (tmp_path / "application_default_credentials.json").write_bytes(service.key_file.read_bytes())
    gs_bucket.store.client().pipe_file(gs_bucket.url("run-a/rank-0.csv"), b"123")
    gs_bucket.store.forget()
    assert [file.name for file in open_source(gs_bucket.url("run-a")).files()] == ["rank-0.csv"]

"""Fixtures of the tests of collecting."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.waiting import PATIENCE_SECONDS

from stallscope.collector.mlflow import client
from stallscope.collector.sources import databricks, files, source
from stallscope.collector.sources.files import Files
from stallscope.collector.store import remote_folder


@pytest.fixture(autouse=True)
def no_silent_servers() -> None:
    """Forget which servers did not answer in tests before."""
    files._SILENT_UNTIL.clear()
    source._silent_until.clear()


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for servers as long as a busy machine takes; tests of silent servers wait shorter."""
    monkeypatch.setattr(Files, "timeout_seconds", PATIENCE_SECONDS)
    monkeypatch.setattr(databricks, "_ANSWER_SECONDS", PATIENCE_SECONDS)
    limit = ("MLFLOW_HTTP_REQUEST_TIMEOUT", int(PATIENCE_SECONDS))
    monkeypatch.setitem(client._FIRST_REQUEST, "timeout", limit)
    monkeypatch.setattr(files, "_ASKED_AGAIN_SECONDS", PATIENCE_SECONDS)
    monkeypatch.setattr(remote_folder, "_LEASE_SECONDS", PATIENCE_SECONDS)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Return the folder of an empty store."""
    place = tmp_path / "store"
    place.mkdir()
    return place


@pytest.fixture
def one_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disable retries: they only make tests slower."""
    monkeypatch.setattr(Files, "attempts", 1)

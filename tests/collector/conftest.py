"""Fixtures of the tests of collecting."""

from __future__ import annotations

from pathlib import Path

import pytest

from stallscope.collector.sources import files, source
from stallscope.collector.sources.files import Files


@pytest.fixture(autouse=True)
def no_silent_servers() -> None:
    """Forget which servers did not answer in tests before."""
    files._SILENT_UNTIL.clear()
    source._silent_until.clear()


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

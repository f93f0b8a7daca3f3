"""Fixtures of the tests of collecting."""

from __future__ import annotations

import pytest

from stallscope.collector.sources.files import Files


@pytest.fixture
def one_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disable retries: they only make tests slower."""
    monkeypatch.setattr(Files, "attempts", 1)

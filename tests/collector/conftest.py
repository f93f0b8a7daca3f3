"""Fixtures of the tests of collecting."""

from __future__ import annotations

import pytest

from stallscope.collector.sources.files import Files


@pytest.fixture
def one_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Try nothing again: further attempts only keep tests waiting."""
    monkeypatch.setattr(Files, "attempts", 1)

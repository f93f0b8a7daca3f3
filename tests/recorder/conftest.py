"""Fixtures of the recorder's tests."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from recorder.processes import leave_outer_training

from stallscope.collector.recorder.job.world import World
from stallscope.collector.recorder.lock_waits import LockWaits
from stallscope.collector.recorder.options import Options
from stallscope.collector.recorder.session import Session

#: Long enough that only a test's own flush or the end writes anything.
NEVER = 3600.0
ALONE = World(0, 1, None)

Opener = Callable[..., Session]


@pytest.fixture(autouse=True)
def no_collections_by_chance() -> Iterator[None]:
    """Collect garbage only where a test does: a long collection adds a row to the log of any session."""
    was_on = gc.isenabled()
    gc.disable()
    yield
    if was_on:
        gc.enable()


@pytest.fixture
def open_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Opener]:
    """Open sessions in one folder; those still open at the end are closed."""
    leave_outer_training(monkeypatch)
    # Threads of other tests may have Python's lock: rows about that would be among the expected ones.
    monkeypatch.setattr(LockWaits, "start", lambda self: None)
    sessions: list[Session] = []

    def open_one(counted: int = 0, *, world: World = ALONE, **options: Any) -> Session:
        folder = options.pop("folder", tmp_path / "logs")
        flush_seconds = options.pop("flush_seconds", NEVER)
        before_flush = options.pop("before_flush", None)
        settings = Options(folder, flush_seconds=flush_seconds, **options)
        sessions.append(Session(settings, world, {"model": "m"}, counted, before_flush))
        return sessions[-1]

    yield open_one
    for session in sessions:
        session.close()

"""The recorder's own threads yield to the training thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from stallscope.collector.recorder.guards import (
    mark_background_thread,
    patch,
    yield_to_training,
)

_WORKER = "worker of a test"


def test_background_thread_pauses_between_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses = _noted_pauses(monkeypatch)

    def make_rows() -> None:
        mark_background_thread()
        for done in range(100):
            yield_to_training(done)

    _run_in_thread(make_rows)
    assert len(pauses) >= 3


def test_training_thread_never_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses = _noted_pauses(monkeypatch)
    _run_in_thread(lambda: [yield_to_training(done) for done in range(100)])
    assert pauses == []


def _noted_pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Note the pauses of the thread that runs the test's work; threads of other tests sleep."""
    pauses: list[float] = []
    sleep = time.sleep

    def pause(seconds: float) -> None:
        if threading.current_thread().name == _WORKER:
            pauses.append(seconds)
        else:
            sleep(seconds)

    monkeypatch.setattr(time, "sleep", pause)
    return pauses


def _run_in_thread(work: Callable[[], object]) -> None:
    thread = threading.Thread(target=work, name=_WORKER)
    thread.start()
    thread.join()


def test_a_restored_attribute_is_what_the_class_had() -> None:
    """What it returns may be another object, as for functions of classes in C."""

    class Library:
        @staticmethod
        def doubled(number: int) -> int:
            return 2 * number

    restore = patch(Library, "doubled", lambda library, number: 0)
    assert Library().doubled(3) == 0
    restore()
    assert Library().doubled(3) == 6

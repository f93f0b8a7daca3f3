"""Waits in collectives belong to the step that the next reduction ends."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from stallscope.collector.recorder.pytorch import waits
from stallscope.collector.recorder.pytorch.waits import Waits


def counting(timestamp: Callable[[], Any] = lambda: None) -> Waits:
    return Waits(lambda: 0, timestamp)


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that is ten nanoseconds later at each look."""
    ticks = count(0, 10)
    monkeypatch.setattr(waits, "monotonic_ns", lambda: next(ticks))


def test_a_collective_returns_what_it_returned_and_its_time_counts() -> None:
    counter = counting()
    assert counter.timed(lambda first, second: (counter.since, first + second))(1, second=2) == (
        0,
        3,
    )
    assert counter.since is None
    assert counter.before(1) == (10, ())


def test_a_collective_that_raises_counts_as_well() -> None:
    counter = counting()
    with pytest.raises(ZeroDivisionError):
        counter.timed(lambda: 1 / 0)()
    assert (counter.since, counter.before(1)) == (None, (10, ()))


def test_each_step_has_its_own_waits() -> None:
    counter = counting()
    collective = counter.timed(lambda: None)
    collective()
    collective()
    assert counter.before(1) == (20, ())
    collective()
    # Another reduction with the same cause ends the same step.
    assert counter.before(1) == (30, ())
    collective()
    assert counter.before(2) == (10, ())


def test_a_collective_inside_of_another_one_counts_once() -> None:
    counter = counting()
    inner = counter.timed(lambda: None)
    counter.timed(inner)()
    assert counter.before(1) == (10, ())


def test_a_collective_of_another_thread_does_not_count() -> None:
    counter = counting()
    thread = threading.Thread(target=counter.timed(lambda: None))
    thread.start()
    thread.join()
    assert counter.before(1) == (0, ())


def test_a_listener_receives_each_collective_with_its_iteration() -> None:
    counter, heard = counting(), []
    counter.on_wait = lambda *times: heard.append(times)
    counter.timed(lambda: None)()
    counter.timed(lambda: None)()
    assert heard == [(0, 10, 0), (20, 30, 0)]
    assert counter.before(1) == (0, ())


def test_on_a_device_its_timestamps_are_kept() -> None:
    stamps = count(100)
    counter = counting(lambda: next(stamps))
    counter.timed(lambda: None)()
    assert counter.before(1) == (0, ((100, 101),))
    counter.timed(lambda: None)()
    assert counter.before(2) == (0, ((102, 103),))


def test_collectives_outside_of_steps_do_not_count() -> None:
    between = Waits(lambda: None, lambda: None)
    between.timed(lambda: None)()
    assert between.before(1) == (0, ())

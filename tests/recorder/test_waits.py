"""Waits in collectives belong to the step that the next reduction ends."""

from __future__ import annotations

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


def test_a_reduction_may_be_a_collective_itself() -> None:
    counter = counting()
    counter.timed(lambda: None)()
    assert counter.before(1) == (10, ())
    counter.add(waits.monotonic_ns())
    counter.settle()
    assert counter.before(2) == (0, ())


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


@pytest.mark.parametrize("gathers", [0, 1])
def test_collectives_of_earlier_iterations_belong_to_the_latest_reduction(gathers: int) -> None:
    iteration = count(1)
    began = next(iteration)
    of_iterations = Waits(lambda: began, lambda: None)
    collective = of_iterations.timed(lambda: None)
    for step in (1, 2, 3):
        # The Trainer counts tokens before the forward pass.
        for _ in range(gathers):
            collective()
        of_iterations.settle_earlier()
        collective()
        assert of_iterations.before(step) == (10 * (gathers + 1), ())
        # The norm of the gradients.
        collective()
        began = next(iteration)


def test_collectives_between_two_reductions_of_an_iteration_belong_to_the_first() -> None:
    reductions = counting()
    collective = reductions.timed(lambda: None)
    collective()
    assert reductions.before(1) == (10, ())
    collective()
    reductions.settle_earlier()
    collective()
    assert reductions.before(2) == (10, ())

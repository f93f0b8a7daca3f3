"""Find the gradient that finishes last, by checking groups."""

from __future__ import annotations

import random

import pytest

from stallscope.collector.recorder.mxnet.gluon_iterations import LastGradient

ASKED_UNTIL = 1_000_000_000
MS = 1_000_000


def ask(search: LastGradient, ready_ns: dict[str, int]) -> None:
    """Run one step; ``ready_ns`` has the nanoseconds from the requests until each gradient is ready."""
    groups = search.groups
    assert sorted(name for group in groups for name in group) == sorted(ready_ns)
    times = [ASKED_UNTIL + max(ready_ns[name] for name in group) for group in groups]
    search.learn(times, ASKED_UNTIL)


def search_to_the_end(search: LastGradient, ready_ns: dict[str, int]) -> int:
    """Return the number of steps until one gradient is found to be the last."""
    steps = 0
    while not search.patience:
        ask(search, ready_ns)
        steps += 1
        assert steps < 100
    return steps


def searched(ready_ns: dict[str, int]) -> LastGradient:
    """Return a completed search."""
    search = LastGradient(list(ready_ns))
    search_to_the_end(search, ready_ns)
    return search


def another_than(search: LastGradient) -> str:
    return "layer3" if search.guess == "layer2" else "layer2"


def shuffled(count: int, seed: int) -> dict[str, int]:
    """Make gradients that finish a millisecond apart, in any order of their names."""
    times = [(1 + place) * MS for place in range(count)]
    random.Random(seed).shuffle(times)
    return {f"layer{number}": at for number, at in enumerate(times)}


@pytest.mark.parametrize("count", [1, 2, 3, 5, 81, 400])
def test_the_last_of_any_is_found_in_a_few_steps(count: int) -> None:
    for seed in range(10):
        ready_ns = shuffled(count, seed)
        search = LastGradient(list(ready_ns))
        steps = search_to_the_end(search, ready_ns)
        assert steps <= 3
        assert search.guess == max(ready_ns, key=lambda name: ready_ns[name])


def test_a_result_is_checked_soon_and_then_occasionally() -> None:
    ready_ns = shuffled(8, 1)
    search = searched(ready_ns)
    soon = search.patience
    ask(search, ready_ns)
    assert search.patience > soon > 0


def test_another_gradient_that_becomes_last_is_found() -> None:
    ready_ns = shuffled(8, 1)
    search = searched(ready_ns)
    gradient = another_than(search)
    ready_ns[gradient] = 100 * MS
    ask(search, ready_ns)
    assert search.patience == 0
    search_to_the_end(search, ready_ns)
    assert search.guess == gradient


def test_a_later_gradient_outside_the_group_restarts_the_search() -> None:
    ready_ns = shuffled(8, 1)
    search = LastGradient(list(ready_ns))
    ask(search, ready_ns)
    [*_, others] = search.groups
    ready_ns[others[0]] = 100 * MS
    ask(search, ready_ns)
    assert search.patience == 0
    search_to_the_end(search, ready_ns)
    assert search.guess == others[0]


def test_gradients_that_are_ready_when_checked_are_ignored() -> None:
    ready_ns = dict.fromkeys(shuffled(8, 1), 10_000)
    search = LastGradient(list(ready_ns))
    guess = search.guess
    ask(search, ready_ns)
    assert search.patience > 0
    assert search.guess == guess
    # Later the training is behind its host again.
    ready_ns = shuffled(8, 1)
    ask(search, ready_ns)
    search_to_the_end(search, ready_ns)
    assert search.guess == max(ready_ns, key=lambda name: ready_ns[name])


def test_chance_differences_do_not_restart_the_search() -> None:
    ready_ns = shuffled(8, 1)
    search = searched(ready_ns)
    last = search.guess
    gradient = another_than(search)
    ready_ns[gradient] = ready_ns[last] + 20_000
    ask(search, ready_ns)
    assert search.patience > 0
    assert search.guess == last

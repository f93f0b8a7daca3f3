"""Both clocks of a host are read together, or read again."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from stallscope.collector.recorder import guards

WALL = 1_700_000_000_000_000_000


def set_clocks(monkeypatch: pytest.MonkeyPatch, monotonic: Iterator[int], wall: Any) -> None:
    monkeypatch.setattr(guards.time, "monotonic_ns", lambda: next(monotonic))
    monkeypatch.setattr(guards.time, "time_ns", lambda: wall)


def test_the_wall_clock_is_taken_in_the_middle_of_the_reading(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    set_clocks(monkeypatch, iter([1000, 3000]), WALL)
    assert guards.read_clocks() == (1000, WALL - 2000)


def test_a_reading_that_the_scheduler_interrupted_is_repeated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    set_clocks(monkeypatch, iter([0, 900_000, 1_000_000, 1_000_200]), WALL)
    assert guards.read_clocks() == (1_000_000, WALL - 1_000_100)


def test_on_a_host_that_always_interrupts_the_repeats_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    set_clocks(monkeypatch, itertools.count(0, 1_000_000), WALL)
    monotonic, _ = guards.read_clocks()
    assert monotonic == 4_000_000  # the start of the third reading


def test_an_interrupted_reading_is_not_a_jump_of_the_wall_clock() -> None:
    assert guards._INTERRUPTED_NS / 2 < guards.JUMP_NS

"""A lasting rise of the step time is found soon, and nothing else is one."""

from __future__ import annotations

import numpy as np
import pytest

from stallscope.analysis.ledger.change_points import REFERENCE_STEPS, find_rise
from stallscope.arrays.types import Floats

USUAL_MS = 50.0
CHANGE = 400


def noisy(seed: int, steps: int, cv: float = 0.05) -> Floats:
    noise = np.random.default_rng(seed).standard_normal(steps)
    return USUAL_MS * np.exp(cv * noise)


@pytest.mark.parametrize("seed", range(20))
def test_a_rise_of_10_percent_is_found_within_30_steps_and_stays_found(seed: int) -> None:
    times = noisy(seed, CHANGE + 300)
    times[CHANGE:] *= 1.1
    assert find_rise(times[:CHANGE]) is None
    for seen in (30, 100, 300):
        rise = find_rise(times[: CHANGE + seen])
        assert rise is not None
        assert rise.by == pytest.approx(0.1, abs=0.05)
        assert abs(rise.began - CHANGE) < 15
        assert rise.began < rise.detected <= CHANGE + 30


@pytest.mark.parametrize("seed", range(20))
def test_noise_is_no_rise(seed: int) -> None:
    times = noisy(seed, 2_000)
    assert all(find_rise(times[:end]) is None for end in range(0, 2_000, 20))


@pytest.mark.parametrize("length", [1, 5, 15, 60])
def test_a_burst_passes(length: int) -> None:
    times = noisy(1, 1_000)
    times[CHANGE : CHANGE + length] *= 2
    after = range(CHANGE + length + 11, 1_000)
    assert all(find_rise(times[:end]) is None for end in after)


def test_what_becomes_usual_again_is_no_rise_any_more() -> None:
    times = noisy(2, 1_000)
    times[CHANGE : CHANGE + 100] *= 1.2
    assert find_rise(times[: CHANGE + 100]) is not None
    assert find_rise(times) is None


def test_faster_steps_are_no_rise() -> None:
    times = noisy(3, 1_000)
    times[CHANGE:] *= 0.7
    assert find_rise(times) is None


@pytest.mark.parametrize("steps", [0, 1, REFERENCE_STEPS, REFERENCE_STEPS + 5])
def test_few_steps_tell_nothing(steps: int) -> None:
    assert find_rise(np.linspace(1.0, 9.0, steps)) is None


def test_equal_steps_that_become_longer() -> None:
    times = np.full(600, USUAL_MS)
    times[CHANGE:] = USUAL_MS * 1.06
    rise = find_rise(times)
    assert rise is not None
    assert (rise.began, rise.by) == (CHANGE, pytest.approx(0.06))

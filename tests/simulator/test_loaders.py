"""Prefetching loaders fill their queues while ranks compute and wait."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from simulator import EveryNth, Fault, Fixed, Job, Noise, simulate

MS = 1_000_000
JOB = Job(
    ranks=4,
    steps=200,
    prefetch=2,
    input_ms=20,
    compute_ms=30,
    other_ms=1,
    communication=Fixed(4),
    noise=Noise(cv=0),
    jitter_ms=0,
    tracing_ms=0,
)


def test_no_rank_waits_for_a_loader_that_keeps_up() -> None:
    truth = simulate(JOB).truth
    assert not truth.input[1:].any()
    assert truth.step_ms() == pytest.approx(35)


def test_loaders_that_do_not_keep_up_set_the_pace() -> None:
    truth = simulate(replace(JOB, input_ms=100)).truth
    assert np.diff(truth.reduced_first)[20:] == pytest.approx(100 * MS)
    # Which rank's batch arrives first is random: that rank waits for the others.
    inputs = truth.input[20:] / MS
    assert np.ptp(inputs.mean(axis=0)) > 10
    assert inputs.max() == pytest.approx(65)


@pytest.mark.parametrize(("prefetch", "waited_ms"), [(1, 105), (2, 70), (4, 0)])
def test_a_queue_hides_a_stall_as_far_as_it_reaches(prefetch: int, waited_ms: float) -> None:
    stall = Fault("input", 120, ranks=(2,), when=EveryNth(50), cv=0)
    truth = simulate(replace(JOB, prefetch=prefetch, faults=(stall,))).truth
    # A batch of 140 ms is started so many steps of 35 ms before it is requested.
    assert truth.input[10:].max(axis=0) / MS == pytest.approx([0, 0, waited_ms, 0])


def test_a_prefetch_below_zero_is_refused() -> None:
    with pytest.raises(ValueError, match="prefetch is -1"):
        replace(JOB, prefetch=-1)

"""Ranks that share CPU cores: busy ranks slow the others, waiting ranks free their core."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from simulator import Clocks, EveryNth, Fault, Fixed, Job, Noise, simulate
from simulator.shared_cores import share_out

from stallscope.analysis.setup import CoreUse, crowded_cores

MS = 1_000_000
# Every rank works for 40 ms.
EVEN = Job(
    ranks=4,
    steps=20,
    cores_per_host=2,
    input_ms=4,
    compute_ms=30,
    other_ms=6,
    communication=Fixed(5),
    noise=Noise(cv=0),
    jitter_ms=0,
    tracing_ms=0,
)


def step_ms(*faults: Fault, **changes: Any) -> float:
    return simulate(replace(EVEN, faults=faults, **changes)).truth.step_ms()


@pytest.mark.parametrize(
    ("cores", "expected"), [(None, 45), (8, 45), (4, 45), (3, 40 * 4 / 3 + 5), (2, 85), (1, 165)]
)
def test_ranks_share_the_cores_of_their_host(cores: int | None, expected: float) -> None:
    assert step_ms(cores_per_host=cores) == pytest.approx(expected, abs=0.01)


def test_ranks_on_other_hosts_take_no_cores() -> None:
    truth = simulate(replace(EVEN, ranks=5, ranks_per_host=4)).truth
    assert truth.arrival[5] / MS == pytest.approx([80, 80, 80, 80, 40])


def test_a_rank_that_sleeps_leaves_its_core_to_the_others() -> None:
    truth = simulate(replace(EVEN, faults=(Fault("other", 100, ranks=(1,), cv=0),))).truth
    # Three share two cores once rank 1 sleeps, after 6 of its 40 ms at half speed.
    others = 12 + 34 * 3 / 2
    assert truth.arrival[5] / MS == pytest.approx([others, 12 + 100 + 34, others, others])
    assert truth.step_ms() == pytest.approx(146 + 5)


@pytest.mark.parametrize(("threads", "others"), [(1, 80), (2, 84), (4, 92)])
def test_a_fault_that_burns_cpu_slows_the_others_down(threads: int, others: float) -> None:
    fault = Fault("other", 8, ranks=(1,), cv=0, burns=threads)
    truth = simulate(replace(EVEN, faults=(fault,))).truth
    # Its 8 ms take 8 × busy threads / 2 cores; meanwhile each of the others completes 8 ms.
    assert truth.extra["other"][5] / MS == pytest.approx([0, 8 * (3 + threads) / 2, 0, 0])
    assert truth.arrival[5, 0] / MS == pytest.approx(others)


def test_the_last_rank_has_a_core_to_itself() -> None:
    truth = simulate(replace(EVEN, faults=(Fault("compute", 10, ranks=(1,), cv=0, burns=1),))).truth
    assert truth.arrival[5] / MS == pytest.approx([80, 90, 80, 80])


NOISY = Job(
    ranks=10,
    steps=60,
    epochs=3,
    checkpoint_ms=30,
    validation_ms=20,
    noise=Noise(cv=0.1, tail_share=0.02),
    clocks=Clocks(offset_s=10, drift_ppm=20),
    faults=(
        Fault("input", 20, ranks=(1,), burns=2),
        Fault("input", 10, rotating=2),
        Fault("other", 20, when=EveryNth(3), burns=1),
        Fault("compute", 20, ranks=(2,), bucket=True),
    ),
)


def test_with_enough_cores_nothing_changes() -> None:
    plain, enough = simulate(NOISY), simulate(replace(NOISY, cores_per_host=9))
    assert enough.run.steps.equals(plain.run.steps)
    assert enough.run.intervals.equals(plain.run.intervals)
    for name, extra in plain.truth.extra.items():
        assert np.array_equal(enough.truth.extra[name], extra), name
    for name in ("input", "compute", "other", "allreduce", "reduced_first"):
        assert np.array_equal(getattr(enough.truth, name), getattr(plain.truth, name)), name


def test_the_truth_adds_up_on_shared_cores() -> None:
    truth = simulate(replace(NOISY, cores_per_host=3)).truth
    within = truth.epochs[1:] == truth.epochs[:-1]
    assert np.array_equal(np.diff(truth.reduced_first)[within], truth.step[1:][within])
    for stage in ("input", "other"):
        assert (truth.extra[stage] <= getattr(truth, stage)).all()


def test_no_more_work_is_done_than_the_cores_can_do() -> None:
    random = np.random.default_rng(1)
    needs = random.integers(0, 50, (5, 6, 40)) * MS
    begin = random.integers(0, 5, (6, 40)) * MS
    took = share_out(2, begin, needs, [1, 1, 0, 1, 1])
    assert (took >= needs).all()
    assert np.array_equal(took[2], needs[2])
    finished = (begin + took.sum(axis=0)).max(axis=0)
    assert (needs[[0, 1, 3, 4]].sum(axis=(0, 1)) / 2 <= finished).all()
    # Cores are never idle while more than one rank has work.
    alone = begin.max(axis=0) + needs.sum(axis=0).max(axis=0)
    assert (finished <= needs.sum(axis=(0, 1)) / 2 + alone).all()


def test_the_analysis_sees_from_logs_that_cores_are_shared() -> None:
    run = simulate(EVEN).run
    crowded = crowded_cores(run)
    assert crowded is not None
    assert (crowded.threads, crowded.cores) == (4, 2)
    assert CoreUse.of(run) == CoreUse(on_cpu=True, shared=True, machine=crowded)
    on_two = CoreUse.of(simulate(replace(EVEN, ranks_per_host=2, cores_per_host=1)).run)
    assert on_two == CoreUse(on_cpu=True, shared=True)
    assert CoreUse.of(simulate(replace(EVEN, cores_per_host=8)).run) == CoreUse(on_cpu=True)
    assert CoreUse.of(simulate(replace(EVEN, cores_per_host=None)).run) == CoreUse()


@pytest.mark.parametrize(
    ("changes", "what"),
    [({"cores_per_host": 0}, "cores_per_host is 0"), ({"prefetch": 2}, "prefetching loaders")],
)
def test_unsupported_jobs_are_refused(changes: dict[str, Any], what: str) -> None:
    with pytest.raises(ValueError, match=what):
        replace(EVEN, **changes)


def test_a_late_bucket_burns_nothing() -> None:
    with pytest.raises(ValueError, match="cannot burn CPU"):
        Fault("compute", 10, bucket=True, burns=1)

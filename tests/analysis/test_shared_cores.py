"""Gains where ranks share CPU cores, compared with the same job simulated without the fault.

The truth after a fix is exact here: ranks that wait or sleep leave their core to the others, and a
fault that burns CPU takes cores from them.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
from simulator import Fault, Fixed, Job, Noise, simulate

from stallscope.analysis import Analysis, analyse
from stallscope.analysis.gains.slowed_peers import sped_up_peers
from stallscope.analysis.gains.what_if import WhatIf
from stallscope.analysis.setup import CpuLoad

# Ranks, and the cores that they share.
SHAPES = ((2, 2), (4, 2), (8, 4))
STAGES = ("input", "compute", "other")


def job(ranks: int, cores: int, *faults: Fault) -> Job:
    return Job(
        ranks=ranks,
        steps=300,
        input_ms=2,
        compute_ms=60,
        other_ms=3,
        communication=Fixed(8),
        noise=Noise(cv=0.03),
        cores_per_host=cores,
        faults=faults,
    )


def step_ms(job_: Job) -> float:
    return simulate(job_).truth.step_ms()


@dataclass(frozen=True)
class Case:
    """A job with one fault; all times in milliseconds per step."""

    job: Job
    fix: str
    with_baseline: bool = True

    @property
    def fault(self) -> Fault:
        return self.job.faults[0]

    @property
    def step(self) -> float:
        return step_ms(self.job)

    @property
    def after(self) -> float:
        return step_ms(self.job.healthy())

    def gain(self) -> WhatIf | None:
        analysis = analysed(self.job, self.with_baseline)
        return next((gain for gain in analysis.what_if if str(gain.fix) == self.fix), None)


def analysed(job_: Job, with_baseline: bool = True) -> Analysis:
    baseline = simulate(job_.baseline(input_ms=job_.input_ms)).run if with_baseline else None
    return analyse(simulate(job_).run, baseline)


def single_faults(with_baseline: bool, threads: Sequence[str]) -> list[Case]:
    """Yield a fault of a third of the step on one rank and on all: it sleeps, burns one core, or
    all cores.
    """
    cases = []
    for (ranks, cores), stage, burns, on_one in itertools.product(
        SHAPES, STAGES, threads, (True, False)
    ):
        healthy = job(ranks, cores)
        fault = Fault(
            stage,
            step_ms(healthy) / 3,
            ranks=(1,) if on_one else (),
            burns={"none": 0, "one": 1, "all": cores}[burns],
        )
        faulty = replace(healthy, faults=(fault,))
        cases.append(Case(faulty, "rank:1" if on_one else stage, with_baseline))
    return cases


@pytest.mark.any_versions
@pytest.mark.slow
def test_predictions_from_a_baseline_come_true_on_shared_cores() -> None:
    errors, held = [], []
    for case in single_faults(with_baseline=True, threads=("none", "all")):
        gain = case.gain()
        assert gain is not None
        assert not gain.bound
        assert gain.saved_ms.ci95 is not None
        saved = case.step - case.after
        errors.append(abs(gain.saved_ms.value - saved) / case.step)
        held.append(gain.saved_ms.ci95[0] <= saved <= gain.saved_ms.ci95[1])
    assert np.median(errors) < 0.005
    assert np.quantile(errors, 0.9) < 0.03
    assert max(errors) < 0.06
    assert np.mean(held) == 1


@pytest.mark.any_versions
@pytest.mark.slow
def test_without_a_baseline_gains_on_shared_cores_are_bounds_that_hold() -> None:
    for case in single_faults(with_baseline=False, threads=("none", "one", "all")):
        gain = case.gain()
        if gain is None:
            # No evidence shows that compute is slow on all ranks.
            assert (case.fix, case.fault.stage) == ("compute", "compute")
            continue
        assert gain.bound
        below = (case.step - case.after - gain.saved_ms.value) / case.step
        if case.fault.burns <= 1 or case.fix == "rank:1":
            assert below < 0.005, case
        else:
            # All ranks with more threads than the machine has cores: known to gain some more.
            assert below < 0.06, case


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("stage", ["input", "other"])
def test_peers_of_a_rank_that_burns_cores_are_faster_once_it_is_fixed(
    shape: tuple[int, int], stage: str
) -> None:
    ranks, cores = shape
    healthy = job(ranks, cores)
    fault = Fault(stage, 0.15 * step_ms(healthy), ranks=(1,), burns=cores)
    faulty = replace(healthy, faults=(fault,))
    case = Case(faulty, "rank:1", with_baseline=False)
    gain = case.gain()
    assert gain is not None
    assert gain.estimate is not None
    assert case.step / gain.estimate == pytest.approx(case.after, rel=0.02)
    assert gain.speedup >= gain.estimate


def faster_peers(fault: Fault) -> tuple[float, float]:
    """Return the share of their time that peers of faulty rank 1 gain, and the largest possible one."""
    analysis = analysed(job(4, 2, fault), with_baseline=False)
    assert analysis.steady is not None
    (straggler,) = analysis.stragglers
    load = CpuLoad(("host-0",), (0, 1, 2, 3), 4, 2)
    faster = sped_up_peers(analysis.steady, straggler, {1}, load)
    peers = analysis.steady.cells.columns("arrival", [0, 2, 3]).mean()
    assert faster.ci95 is not None
    return faster.value / peers, faster.ci95[1] / peers


def test_only_a_fault_that_takes_cores_slows_its_peers() -> None:
    assert faster_peers(Fault("input", 25, ranks=(1,), burns=2))[0] > 0.05
    assert faster_peers(Fault("input", 25, ranks=(1,), burns=1))[0] == 0
    assert faster_peers(Fault("input", 25, ranks=(1,))) == (0, 0)
    # The work in compute varies by itself.
    assert faster_peers(Fault("compute", 25, ranks=(1,), burns=2)) == (0, 0)


def test_a_fault_that_outlasts_its_peers_takes_at_most_what_the_cores_allow() -> None:
    fault = Fault("input", 70, ranks=(1,), burns=2)
    assert faster_peers(fault) == pytest.approx((0.2, 0.2))
    # For longer faults, no evidence shows whether they take cores.
    assert faster_peers(replace(fault, ms=150)) == pytest.approx((0, 0.2))


@pytest.mark.parametrize(
    ("ranks", "threads", "cores", "share"),
    [(2, 2, 2, 1 / 3), (4, 4, 2, 1 / 5), (8, 8, 4, 3 / 11), (4, 4, 1, 0), (2, 8, 2, 0)],
)
def test_a_rank_with_a_thread_per_core_slows_the_others(
    ranks: int, threads: int, cores: int, share: float
) -> None:
    load = CpuLoad(("host-0",), tuple(range(ranks)), threads, cores)
    assert load.most_taken == pytest.approx(share)


def test_a_fault_and_its_effect_on_other_ranks_are_distinguished() -> None:
    """A smaller separate fault on all ranks counts; compute slowed by a fault on rank 1 does not."""
    healthy = job(8, 4)
    half, fifth = 0.5 * step_ms(healthy), 0.2 * step_ms(healthy)
    on_one = Fault("input", half, ranks=(1,))
    on_all = Fault("other", fifth)
    faulty = replace(healthy, faults=(on_one, on_all))
    saved = {str(gain.fix): gain.saved_ms.value for gain in analysed(faulty).what_if}
    step, only_all = step_ms(faulty), step_ms(replace(healthy, faults=(on_all,)))
    assert saved["imbalance"] == pytest.approx(step - only_all, abs=0.1 * step)
    assert saved["other"] == pytest.approx(only_all - step_ms(healthy), abs=0.1 * step)

    burning = replace(healthy, faults=(replace(on_one, burns=4),))
    saved = {str(gain.fix): gain.saved_ms.value for gain in analysed(burning).what_if}
    step = step_ms(burning)
    assert saved["imbalance"] == pytest.approx(step - step_ms(healthy), abs=0.03 * step)
    assert saved["compute"] == pytest.approx(0, abs=0.03 * step)

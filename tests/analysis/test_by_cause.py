"""The ledger by cause: every millisecond of the step belongs to a stage of the last rank."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from analysis.samples import SAMPLES, sample
from simulator import Bursts, Fault, Job, Noise, simulate

from stallscope.analysis import analyse
from stallscope.analysis.ledger.ledger import Ledger
from stallscope.words import CAUSES, STAGES

JOB = Job(ranks=8, steps=300, noise=Noise(cv=0.1))
FAULTS = {
    "none": (),
    "input on one": (Fault("input", 40, ranks=(1,)),),
    "compute on all": (Fault("compute", 40),),
    "other in bursts": (Fault("other", 90, ranks=(2,), when=Bursts(every=20, length=3)),),
    "input that rotates": (Fault("input", 60, rotating=1),),
}


def assert_exact(ledger: Ledger) -> None:
    by_cause = np.sum([ledger.by_cause(name) for name in CAUSES], axis=0)
    np.testing.assert_array_equal(by_cause, ledger.total)
    waiting = np.sum([ledger.excess(stage) for stage in STAGES], axis=0)
    np.testing.assert_array_equal(waiting, ledger.imbalance)


@pytest.mark.parametrize("faults", FAULTS.values(), ids=FAULTS)
@pytest.mark.parametrize("ranks", [1, 2, 8])
def test_every_step_adds_up_to_the_nanosecond(faults: tuple[Fault, ...], ranks: int) -> None:
    analysis = analyse(
        simulate(replace(JOB, ranks=max(ranks, 3 if faults else ranks), faults=faults)).run
    )
    assert analysis.ledger is not None
    assert_exact(analysis.ledger)


@pytest.mark.parametrize("name", SAMPLES)
def test_every_step_of_the_samples_adds_up(name: str) -> None:
    analysis = sample(name)
    assert analysis.ledger is not None
    assert_exact(analysis.ledger)
    assert analysis.step is not None
    assert sum(entry.ms for entry in analysis.by_cause) == pytest.approx(analysis.step.mean)
    imbalance = analysis.entry("imbalance")
    assert imbalance is not None
    assert sum(entry.waiting_ms for entry in analysis.by_cause) == pytest.approx(imbalance.ms)


@pytest.mark.parametrize("stage", STAGES)
def test_a_fault_on_one_rank_is_in_its_stage_and_in_waiting(stage: str) -> None:
    quiet = replace(JOB, noise=Noise(cv=0.01))
    analysis = analyse(simulate(replace(quiet, faults=(Fault(stage, 60, ranks=(1,)),))).run)
    clean = analyse(simulate(quiet).run)
    entry, usual = analysis.cause(stage), clean.cause(stage)
    assert entry is not None
    assert usual is not None
    assert entry.ms - usual.ms == pytest.approx(60, rel=0.1)
    assert entry.waiting_ms - usual.waiting_ms == pytest.approx(60, rel=0.1)


def test_the_difference_to_the_baseline_is_the_same_whether_one_rank_starves_or_all_do() -> None:
    one_rank, all_ranks = (
        sample(f"slow-input-{who}", "synthetic") for who in ("one-rank", "all-ranks")
    )
    stalls = [
        analysis.decomposition.input_stall.value
        for analysis in (one_rank, all_ranks)
        if analysis.decomposition
    ]
    assert stalls[0] == pytest.approx(stalls[1], rel=0.03)
    for analysis in (one_rank, all_ranks):
        split = analysis.decomposition
        assert split is not None
        parts = (split.input_stall, split.compute, split.other, split.allreduce)
        assert sum(part.value for part in parts) == pytest.approx(split.loss.value)
        assert split.input_stall.value > 0.95 * split.loss.value

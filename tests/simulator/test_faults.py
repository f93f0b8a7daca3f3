"""Every kind of fault adds its time where and when it should."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
from simulator import (
    Between,
    Bursts,
    EveryNth,
    Fault,
    Job,
    Noise,
    Ramp,
    Truth,
    simulate,
)

JOB = Job(ranks=8, ranks_per_host=2, steps=400, noise=Noise(cv=0), jitter_ms=0, tracing_ms=0)


def truth_of(fault: Fault, job: Job = JOB) -> Truth:
    return simulate(replace(job, faults=(fault,))).truth


def extra_ms(fault: Fault, job: Job = JOB) -> npt.NDArray[np.float64]:
    return truth_of(fault, job).extra[fault.stage] / 1e6


@pytest.mark.parametrize("stage", ["input", "compute", "other"])
def test_a_fault_lengthens_its_stage_on_its_ranks(stage: str) -> None:
    truth = truth_of(Fault(stage, 30, ranks=(1, 6)))
    extra = truth.extra[stage][1:] / 1e6
    assert not extra[:, [0, 2, 3, 4, 5, 7]].any()
    assert extra[:, [1, 6]].mean(axis=0) == pytest.approx([30, 30], rel=0.02)
    assert extra[:, 1].std() / 30 == pytest.approx(0.1, rel=0.1)
    assert set(truth.critical[1:].tolist()) == {1, 6}
    for healthy_stage in {"input", "compute", "other"} - {stage}:
        assert not truth.extra[healthy_stage].any()


def test_a_fault_can_be_exact() -> None:
    assert set(extra_ms(Fault("input", 30, ranks=(2,), cv=0))[:, 2].tolist()) == {30.0}


def test_a_host_and_a_rank_can_have_one_fault() -> None:
    hit = (extra_ms(Fault("compute", 10, ranks=(0, 5), hosts=("host-2",))) > 0).all(axis=0)
    assert np.flatnonzero(hit).tolist() == [0, 4, 5]


def test_without_ranks_all_ranks_have_the_fault_with_independent_noise() -> None:
    extra = extra_ms(Fault("input", 10))
    assert (extra > 0).all()
    assert np.abs(np.corrcoef(extra.T) - np.eye(8)).max() < 0.25


def test_a_rotating_fault_has_one_rank_at_a_time() -> None:
    extra = extra_ms(Fault("compute", 20, rotating=10))
    hit = extra > 0
    assert (hit.sum(axis=1) == 1).all()
    whose = hit.argmax(axis=1).reshape(40, 10)
    assert (whose == whose[:, :1]).all()
    assert len(set(whose[:, 0].tolist())) == 8
    among = (extra_ms(Fault("compute", 20, ranks=(2, 3), rotating=10)) > 0).any(axis=0)
    assert np.flatnonzero(among).tolist() == [2, 3]


def test_bursts_come_at_random_on_each_rank_and_last() -> None:
    job = replace(JOB, steps=20_000)
    hit = extra_ms(Fault("compute", 20, when=Bursts(every=100, length=4)), job) > 0
    assert hit.mean() == pytest.approx(1 - 0.99**4, rel=0.1)
    edges = np.diff(hit.astype(int), axis=0, prepend=0)
    begins = (edges == 1).sum()
    assert begins / hit.size == pytest.approx(0.01 * 0.99**4, rel=0.1)
    for rank in range(8):
        starts, ends = (np.flatnonzero(edges[:, rank] == sign) for sign in (1, -1))
        assert (ends - starts[: len(ends)] >= 4).all()
    together = (hit.sum(axis=1) > 1).mean()
    assert together < 0.05


def test_a_ramp_rises_from_nothing_to_twice_the_fault_and_stays() -> None:
    extra = extra_ms(Fault("compute", 10, ranks=(3,), cv=0, when=Ramp(100, 300)))[:, 3]
    assert not extra[:101].any()
    assert extra[200] == 10
    assert (extra[300:] == 20).all()
    assert (np.diff(extra[100:301]) > 0).all()
    whole = extra_ms(Fault("compute", 10, ranks=(3,), cv=0, when=Ramp()))[:, 3]
    assert whole[[0, -1]].tolist() == [0, 20]
    assert whole.mean() == pytest.approx(10)


def test_every_nth_step_is_counted_within_the_epoch() -> None:
    job = replace(JOB, steps=30, epochs=3)
    hit = (extra_ms(Fault("input", 10, when=EveryNth(4, phase=1)), job) > 0).all(axis=1)
    assert np.flatnonzero(hit).tolist() == [1, 5, 9, 11, 15, 19, 21, 25, 29]


def test_between_includes_both_of_its_steps() -> None:
    hit = (extra_ms(Fault("input", 10, when=Between(5, 7))) > 0).all(axis=1)
    assert np.flatnonzero(hit).tolist() == [5, 6, 7]


def test_a_fault_in_other_is_not_in_the_gap_between_epochs() -> None:
    job = replace(JOB, steps=30, epochs=3)
    hit = (extra_ms(Fault("other", 10), job) > 0).all(axis=1)
    assert np.flatnonzero(~hit).tolist() == [0, 10, 20]


def test_a_late_bucket_moves_the_transfer_and_no_timestamp_of_its_rank() -> None:
    fault = Fault("compute", 15, ranks=(2, 4), bucket=True)
    ill, well = truth_of(fault), simulate(JOB).truth
    late = ill.extra["bucket"]
    assert not ill.extra["compute"].any()
    assert np.flatnonzero(late.any(axis=0)).tolist() == [2, 4]
    np.testing.assert_array_equal(ill.arrival, well.arrival)
    np.testing.assert_array_equal(ill.allreduce - well.allreduce, late.max(axis=1))


def test_faults_add_up() -> None:
    faults = (Fault("input", 10, ranks=(1,), cv=0), Fault("input", 5, hosts=("host-0",), cv=0))
    extra = simulate(replace(JOB, faults=faults)).truth.extra["input"] / 1e6
    assert extra[0].tolist() == [5, 15, 0, 0, 0, 0, 0, 0]


def test_the_reference_ranks_stages_do_not_move_with_one_slow_rank() -> None:
    ill = truth_of(Fault("input", 30, ranks=(1,), cv=0)).ledger_means_ms()
    well = simulate(JOB).truth.ledger_means_ms()
    assert ill["imbalance"] == 30
    assert ill["step"] - well["step"] == 30
    assert [ill[name] for name in ("input", "compute", "other")] == [4, 150, 6]

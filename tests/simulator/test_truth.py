"""The truth adds up, agrees with the ledger of a clean run, and a fault's effect is exact."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from simulator import (
    Always,
    Between,
    Bursts,
    Clocks,
    EveryNth,
    Fault,
    Job,
    Jump,
    Noise,
    Ramp,
    Truth,
    simulate,
)

from stallscope.analysis.ledger.build import build_ledger
from stallscope.analysis.steps.alignment import align

MS = 1_000_000
QUIET = Noise(cv=0)
JOB = Job(ranks=8, steps=60, noise=Noise(cv=0.2, tail_share=0.01), jitter_ms=0.5)
BOUNDARIES = replace(
    JOB,
    epochs=4,
    validation_ms=40,
    validation_ranks=(2, 3),
    checkpoint_ms=15,
    epoch_gap_ms=5,
)


@pytest.mark.parametrize(
    "job",
    [
        JOB,
        BOUNDARIES,
        replace(JOB, ranks=1),
        replace(JOB, ranks=5, epochs=60),
        replace(JOB, noise=QUIET, jitter_ms=0),
        replace(JOB, other_ms=0, first_step=1000, generation=2),
        replace(BOUNDARIES, prefetch=2, input_ms=200),
        replace(JOB, ranks=8, ranks_per_host=8, samples_factor={3: 1.5}, rank_spread=0.02),
        replace(
            BOUNDARIES,
            faults=(
                Fault("input", 30, ranks=(1,), when=Bursts(every=10)),
                Fault("other", 9, rotating=7),
                Fault("compute", 20, bucket=True, ranks=(5,)),
            ),
        ),
    ],
)
def test_the_ledger_of_a_run_on_one_clock_is_the_truth_in_every_step(job: Job) -> None:
    simulated = simulate(job)
    ledger = build_ledger(align(simulated.run, job.generation))
    truth = simulated.truth
    assert len(ledger) == job.steps
    for name in ("input", "compute", "other", "arrival", "allreduce", "imbalance"):
        np.testing.assert_array_equal(getattr(ledger, name), getattr(truth, name), name)
    # Of ranks that arrive together, any may be the critical one.
    steps = np.arange(job.steps)
    for name in ("critical", "reference"):
        ours, theirs = (truth.arrival[steps, getattr(of, name)] for of in (truth, ledger))
        np.testing.assert_array_equal(ours, theirs, name)
    np.testing.assert_array_equal(ledger.total, truth.step)
    np.testing.assert_array_equal(ledger.reduced, truth.reduced_first)


def test_the_means_add_up_and_are_those_of_the_steps() -> None:
    truth = simulate(BOUNDARIES).truth
    means = truth.ledger_means_ms(skip=3)
    entries = ("input", "compute", "other", "imbalance", "allreduce")
    assert sum(means[name] for name in entries) == pytest.approx(means["step"], abs=1e-9)
    assert means["step"] == pytest.approx(truth.step[3:].mean() / MS)


def test_step_time_is_from_one_reduction_to_the_next_within_epochs() -> None:
    job = replace(BOUNDARIES, validation_ms=5000)
    truth = simulate(job).truth
    within = np.diff(truth.reduced_first)[np.diff(truth.epochs) == 0]
    assert truth.step_ms() == pytest.approx(within.mean() / MS)
    later = np.diff(truth.reduced_first)[[*range(30, 44), *range(45, 59)]]
    assert truth.step_ms(first=31) == pytest.approx(later.mean() / MS)
    assert truth.step_ms() < 300


def test_a_step_follows_the_model() -> None:
    job = Job(ranks=3, steps=5, noise=QUIET, jitter_ms=0, tracing_ms=500)
    truth = simulate(job).truth
    assert (truth.input == 4 * MS).all()
    assert (truth.compute[0] == 650 * MS).all()
    assert (truth.compute[1:] == 150 * MS).all()
    assert (truth.other[1:] == 6 * MS).all()
    assert (truth.allreduce == 20 * MS).all()
    assert (np.diff(truth.reduced_first) == 180 * MS).all()
    assert truth.ledger_means_ms() == {
        "input": 4.0,
        "compute": 150.0,
        "other": 6.0,
        "imbalance": 0.0,
        "allreduce": 20.0,
        "step": 180.0,
    }


def test_validation_on_some_ranks_makes_the_others_wait() -> None:
    job = Job(
        ranks=4,
        steps=20,
        epochs=2,
        noise=QUIET,
        jitter_ms=0,
        validation_ms=100,
        validation_ranks=[1],
        checkpoint_ms=30,
        epoch_gap_ms=7,
    )
    truth = simulate(job).truth
    # Rank 0 saved, rank 1 validated; no rank waited for another until the next reduction.
    lateness = truth.ready[10] - truth.ready[10, 2]
    assert lateness.tolist() == [30 * MS, 100 * MS, 0, 0]
    between = truth.reduced_first[10] - truth.reduced_first[9]
    assert between == (180 + 100 + 7) * MS + 50_000
    # This time is in no step.
    assert (truth.step[1:] <= 180 * MS).all()


def test_skew_is_a_share_of_the_transfer_from_host_to_host() -> None:
    job = Job(ranks=12, ranks_per_host=4, steps=9, noise=QUIET, jitter_ms=0, skew=0.5)
    truth = simulate(job).truth
    late = (truth.reduced - truth.reduced_first[:, None])[:, ::4] / MS
    assert (late == [0, 5, 10]).all()
    # A rank that learns of it late starts the next step late.
    assert (truth.other[1:, ::4] / MS == [6, 11, 16]).all()


def test_jitter_is_never_early() -> None:
    truth = simulate(replace(JOB, ranks=16, ranks_per_host=16, steps=2000)).truth
    last_ready = truth.ready.max(axis=1)
    late = truth.reduced - last_ready[:, None]
    assert (late >= truth.allreduce[:, None]).all()
    spread = late - late.min(axis=1, keepdims=True)
    # The mean of 16 exponential times exceeds the least by 15/16 of their mean.
    assert spread.mean() / MS == pytest.approx(0.5 * 15 / 16, rel=0.02)


def test_uneven_work_is_more_samples_and_more_compute() -> None:
    job = Job(ranks=4, steps=9, noise=QUIET, tracing_ms=0, samples_factor={2: 1.5})
    simulated = simulate(job)
    assert (simulated.truth.compute / MS == [150, 150, 225, 150]).all()
    samples = simulated.run.steps.to_pandas().groupby("rank")["samples"].unique()
    assert [list(values) for values in samples] == [[32], [32], [48], [32]]


def test_healthy_ranks_differ_permanently_by_the_spread() -> None:
    job = Job(ranks=4000, steps=3, noise=QUIET, tracing_ms=0, rank_spread=0.03)
    compute = simulate(job).truth.compute
    assert (compute == compute[0]).all()
    assert compute[0].mean() / MS == pytest.approx(150, rel=0.005)
    assert compute[0].std() / compute[0].mean() == pytest.approx(0.03, rel=0.05)


FAULTS = [
    Fault("input", 30, ranks=(1, 3)),
    Fault("compute", 12, hosts=("host-1",), when=Always(), cv=0.5),
    Fault("other", 9, when=Bursts(every=7, length=2)),
    Fault("input", 40, when=EveryNth(5)),
    Fault("compute", 25, rotating=4),
    Fault("other", 25, ranks=(0,), when=Between(10, 30)),
    Fault("compute", 5, ranks=(6,), when=Ramp()),
]


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("epochs", [1, 4])
def test_a_run_and_its_healthy_twin_differ_by_the_fault_alone(fault: Fault, epochs: int) -> None:
    job = replace(BOUNDARIES, ranks_per_host=4, epochs=epochs, faults=(fault,))
    ill, well = simulate(job).truth, simulate(job.healthy()).truth
    assert ill.extra[fault.stage].sum() > 0
    for stage in ("input", "compute", "other"):
        difference = getattr(ill, stage) - getattr(well, stage)
        np.testing.assert_array_equal(difference, ill.extra[stage], stage)
        if stage != fault.stage:
            assert not difference.any()
    np.testing.assert_array_equal(ill.allreduce, well.allreduce)
    assert not well.extra[fault.stage].any()


def test_another_fault_changes_no_draw_of_the_first() -> None:
    single = simulate(replace(JOB, faults=(FAULTS[0],))).truth
    several = simulate(replace(JOB, faults=(FAULTS[0], FAULTS[2]))).truth
    np.testing.assert_array_equal(single.extra["input"], several.extra["input"])


def test_the_same_seed_gives_the_same_run_and_another_seed_another() -> None:
    job = replace(
        BOUNDARIES,
        ranks_per_host=2,
        faults=tuple(replace(fault, hosts=()) for fault in FAULTS),
        clocks=Clocks(offset_s=50, drift_ppm=20, jumps=(Jump(1, 30, 4.0),)),
        lost_rows=0.1,
    )
    first, again, changed = simulate(job).run, simulate(job).run, simulate(replace(job, seed=2)).run
    assert first == again
    assert not first.steps.equals(changed.steps)


def test_the_truth_cannot_be_overwritten() -> None:
    truth: Truth = simulate(JOB).truth
    with pytest.raises(ValueError, match="read-only"):
        truth.ready[0, 0] = 0


def test_four_thousand_ranks_are_simulated_whole() -> None:
    job = Job(ranks=4096, steps=50, faults=(Fault("compute", 30, ranks=(4000,)),))
    simulated = simulate(job)
    assert simulated.run.steps.num_rows == 4096 * 50
    assert simulated.run.size == 4096
    assert len(simulated.run.hosts) == 512
    assert (simulated.truth.critical == 4000).mean() > 0.9


def test_a_job_may_have_no_steps() -> None:
    simulated = simulate(Job(ranks=2, steps=0, epochs=3))
    assert simulated.run.steps.num_rows == 0
    assert simulated.run.intervals["kind"].to_pylist() == ["end", "end"]
    assert simulated.truth.ready.shape == (0, 2)

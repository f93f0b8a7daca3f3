"""The predicted gain of a fix equals the gain of the same job without the fault."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from simulator import Bursts, Fault, Fixed, Job, Noise, Ramp, Ring, Tree, simulate

from stallscope.analysis import Analysis, analyse
from stallscope.analysis.gains.what_if import WhatIf, saving
from stallscope.analysis.network.communication import (
    MeasuredAllreduce,
    expected_imbalance,
    fit_communication,
)
from stallscope.analysis.views.what_if_queries import ask, parse
from stallscope.arrays.stats import Mean
from stallscope.words import FIX_KINDS, Fix, FixKind

JOB = Job(ranks=8, steps=1000, noise=Noise(cv=0.05))


def saved_ms(analysis: Analysis, fix: str) -> float:
    return next(gain.saved_ms.value for gain in analysis.what_if if str(gain.fix) == fix)


def truly_saved_ms(job: Job, better: Job) -> float:
    """Return how much shorter the mean step is in the same job without the fault, steady steps only."""
    return simulate(job).truth.step_ms(1) - simulate(better).truth.step_ms(1)


def test_no_interval_of_a_speedup_reaches_a_step_of_zero() -> None:
    gain = WhatIf(Fix("input"), Mean(0.0, None), 1.0, None)
    sure = saving(gain, Mean(50.0, (40.0, 60.0)), step_ms=100.0)
    assert sure.speedup == 2
    assert sure.ci95 == pytest.approx((100 / 60, 100 / 40))
    unsure = saving(gain, Mean(50.0, (-20.0, 120.0)), step_ms=100.0)
    assert (unsure.speedup, unsure.ci95) == (2, None)
    assert unsure.saved_ms.ci95 == (-20.0, 120.0)


@pytest.mark.parametrize("ranks", [2, 8, 64])
@pytest.mark.parametrize(
    "fault",
    [
        Fault("input", 60, ranks=(1,)),
        Fault("compute", 30, ranks=(1,)),
        Fault("other", 15, ranks=(1,)),
        Fault("compute", 40, ranks=(1,), when=Ramp()),
        Fault("input", 90, ranks=(1,), when=Bursts(every=20, length=3)),
    ],
    ids=["input", "compute", "other", "ramp", "bursts"],
)
def test_fixing_a_rank_gains_what_the_job_without_its_fault_gains(ranks: int, fault: Fault) -> None:
    job = replace(JOB, ranks=ranks, faults=(fault,))
    analysis = analyse(simulate(job).run)
    step = simulate(job).truth.step_ms(1)
    truth = truly_saved_ms(job, job.healthy())
    assert saved_ms(analysis, "rank:1") == pytest.approx(truth, abs=0.01 * step)
    assert saved_ms(analysis, "imbalance") == pytest.approx(truth, abs=0.01 * step)


@pytest.mark.broad
@pytest.mark.parametrize("ranks", [1, 2, 8, 64])
@pytest.mark.parametrize("stage", ["input", "other"])
@pytest.mark.parametrize("rotating", [0, 1])
def test_a_stage_as_in_the_baseline_gains_its_cost(ranks: int, stage: str, rotating: int) -> None:
    job = replace(JOB, ranks=ranks, faults=(Fault(stage, 30, rotating=rotating),))
    baseline = job.baseline(input_ms=job.input_ms)
    analysis = analyse(simulate(job).run, simulate(baseline).run)
    step = simulate(job).truth.step_ms(1)
    truth = truly_saved_ms(job, job.healthy())
    assert saved_ms(analysis, stage) == pytest.approx(truth, abs=0.01 * step)


def test_step_time_less_imbalance_would_overestimate_the_gain() -> None:
    job = replace(JOB, noise=Noise(cv=0.2), faults=(Fault("compute", 30, ranks=(1,)),))
    analysis = analyse(simulate(job).run)
    truth = truly_saved_ms(job, job.healthy())
    imbalance = analysis.entry("imbalance")
    assert imbalance is not None
    assert imbalance.ms > 2 * truth
    assert saved_ms(analysis, "rank:1") == pytest.approx(truth, abs=0.01 * 250)


def test_allreduce_gains_at_most_itself_and_bandwidth_a_part() -> None:
    job = replace(JOB, communication=Fixed(30.0))
    analysis = analyse(simulate(job).run)
    truth = truly_saved_ms(job, replace(job, communication=Fixed(0.0)))
    assert saved_ms(analysis, "allreduce") == pytest.approx(truth, rel=0.01)
    answer = ask(parse("bandwidth:2"), analysis)
    assert answer is not None
    assert answer.extrapolated
    half = truly_saved_ms(job, replace(job, communication=Fixed(15.0)))
    assert answer.saved_ms.value == pytest.approx(half, rel=0.02)


@pytest.mark.parametrize(
    "question", ["", "bandwidth", "bandwidth:0", "ranks:2.5", "ranks:0", "x:3", "rank:3"]
)
def test_other_questions_are_refused_in_a_sentence(question: str) -> None:
    with pytest.raises(ValueError, match="use bandwidth:4 or ranks:64"):
        parse(question)


RING = Ring(bytes=100_000_000, bandwidth_gb_s=10.0, latency_us=200.0)


@pytest.mark.parametrize("network", [RING, Tree(100_000_000, 10.0, 200.0)], ids=["ring", "tree"])
def test_runs_of_several_sizes_are_projected_to_more_ranks(network: Ring | Tree) -> None:
    job = replace(JOB, communication=network, noise=Noise(cv=0.05, phi=0.3))
    runs = [analyse(simulate(replace(job, ranks=n, run_id=f"r{n}")).run) for n in (2, 4, 8, 16)]
    answer = ask(parse("ranks:64"), runs[-1], runs)
    assert answer is not None
    assert answer.extrapolated
    steps = {n: simulate(replace(job, ranks=n)).truth.step_ms(1) for n in (16, 64)}
    truth = 64 / 16 * steps[16] / steps[64]
    assert answer.speedup == pytest.approx(truth, rel=0.03)
    assert answer.ci95 is not None
    inside = ask(parse("ranks:8"), runs[-1], runs)
    assert inside is not None
    assert not inside.extrapolated


def test_from_one_size_the_interval_goes_from_bandwidth_to_latency() -> None:
    job = replace(JOB, communication=RING)
    analysis = analyse(simulate(job).run)
    answer = ask(parse("ranks:64"), analysis)
    assert answer is not None
    assert answer.ci95 is not None
    steps = {n: simulate(replace(job, ranks=n)).truth.step_ms(1) for n in (8, 64)}
    assert answer.ci95[0] < 64 / 8 * steps[8] / steps[64] < answer.ci95[1]
    assert answer.ci95[1] / answer.ci95[0] > 1.1


def test_a_run_on_one_rank_has_no_communication_to_project() -> None:
    assert ask(parse("ranks:4"), analyse(simulate(replace(JOB, ranks=1)).run)) is None


def test_the_model_finds_latency_and_bandwidth() -> None:
    ring = Ring(bytes=50_000_000, bandwidth_gb_s=5.0, latency_us=100.0)
    runs = [
        MeasuredAllreduce(n, 50_000_000, Mean(ring.transfer_ms(n), None)) for n in (2, 4, 8, 16, 32)
    ]
    model = fit_communication(runs)
    assert model is not None
    assert model.kind == "ring"
    assert model.latency_ms == pytest.approx(0.1, rel=1e-3)
    assert 1e-6 / model.ms_per_byte == pytest.approx(5.0, rel=1e-3)
    assert model.at(256).value == pytest.approx(ring.transfer_ms(256), rel=1e-3)
    assert fit_communication([]) is None


def test_the_expected_imbalance_is_that_of_normal_values() -> None:
    values = np.random.default_rng(1).normal(size=(20_000, 16))
    ordered = np.sort(values, axis=1)
    assert expected_imbalance(16) == pytest.approx(
        (ordered[:, 15] - ordered[:, 7]).mean(), rel=0.03
    )


def test_bus_bandwidth_and_what_backward_hides() -> None:
    ring = Ring(bytes=200_000_000, bandwidth_gb_s=10.0, latency_us=0.0, overlap_ms=15.0)
    run = simulate(replace(JOB, communication=ring)).run
    communication = analyse(run, network_bandwidth=10.0).communication
    assert communication is not None
    assert communication.whole_ms == pytest.approx(35.0)
    assert communication.exposed_ms.value == pytest.approx(20.0, rel=0.02)
    assert communication.hidden_ms == pytest.approx(15.0, rel=0.05)
    assert communication.bus_bandwidth == pytest.approx(17.5, rel=0.02)
    plain = analyse(run).communication
    assert plain is not None
    assert (plain.whole_ms, plain.hidden_ms) == (None, None)
    assert analyse(simulate(replace(JOB, ranks=1)).run).communication is None


@pytest.mark.parametrize("kind", FIX_KINDS)
def test_the_text_of_a_fix_means_the_fix(kind: FixKind) -> None:
    fix = Fix(kind, "a:b" if kind in ("rank", "host", "bandwidth", "ranks") else "")
    assert Fix.parse(str(fix)) == fix


@pytest.mark.parametrize("text", ["", "luck", "rank", "rank:", "input:", "input:3", "Rank:3"])
def test_other_texts_are_no_fixes(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no fix: it is one of input, .*, rank:…, host:…"):
        Fix.parse(text)

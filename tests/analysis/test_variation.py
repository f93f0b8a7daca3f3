"""Compute that varies on every rank: all wait for the rank with the longest batch."""

from __future__ import annotations

from dataclasses import replace

import pytest
from simulator import Fault, Job, Noise, simulate

from stallscope.analysis import Analysis, analyse
from stallscope.analysis.stragglers.lateness import Straggler

QUIET = Job(ranks=8, steps=500, noise=Noise(cv=0.02, phi=0.0), seed=5)


def analysed(job: Job, base: Job | None = QUIET) -> Analysis:
    baseline = None if base is None else simulate(base.baseline(input_ms=1.0)).run
    return analyse(simulate(job).run, baseline)


def varying(analysis: Analysis) -> list[Straggler]:
    return [straggler for straggler in analysis.stragglers if straggler.pattern == "rotating"]


def noisy(cv: float) -> Job:
    return replace(QUIET, noise=Noise(cv=cv, phi=0.0))


def test_batches_of_different_lengths_are_imbalance_without_a_straggler() -> None:
    analysis = analysed(noisy(0.25))
    verdict = analysis.bottleneck
    assert (verdict.kind, verdict.cause, verdict.ranks) == ("imbalance", "compute", ())
    (straggler,) = varying(analysis)
    lost = analysis.step.mean - analysis.baseline.step.mean
    gain = next(gain for gain in analysis.what_if if str(gain.fix) == "imbalance")
    assert straggler.cost_ms == gain.saved_ms
    assert gain.saved_ms.value == pytest.approx(lost, rel=0.1)
    assert gain.saved_ms.value <= lost


def test_variation_is_not_mistaken_for_longer_compute_on_all_ranks() -> None:
    analysis = analysed(noisy(0.25))
    assert analysis.entry("compute").excess_ms < 0
    assert "on all ranks" not in analysis.bottleneck.evidence


def test_as_much_variation_in_the_baseline_is_usual() -> None:
    job = noisy(0.1)
    analysis = analysed(job, job)
    assert varying(analysis) == []
    assert "imbalance" not in {str(gain.fix) for gain in analysis.what_if}


def test_longer_steps_may_vary_by_as_much_more() -> None:
    job = noisy(0.1)
    longer = replace(job, compute_ms=2 * job.compute_ms)
    analysis = analysed(longer, job)
    assert (analysis.bottleneck.kind, varying(analysis)) == ("compute", [])


def test_without_a_baseline_only_a_large_part_of_the_step_counts() -> None:
    assert varying(analysed(noisy(0.02), None)) == []
    analysis = analysed(noisy(0.25), None)
    (straggler,) = varying(analysis)
    assert analysis.bottleneck.kind == "imbalance"
    assert straggler.cost_ms.value == pytest.approx(analysis.entry("imbalance").ms)


def test_a_few_longer_cells_are_distinguished_from_varying_cells() -> None:
    # Too small to stand out in single steps: 18 ms on one of 8 ranks, whose compute scatters by 7.5
    # ms.
    job = noisy(0.05)
    analysis = analysed(replace(job, faults=(Fault("compute", 18.0, rotating=1),)), job)
    (straggler,) = varying(analysis)
    assert straggler.excess_ms.ci95[0] < 18.0 < straggler.excess_ms.ci95[1]
    assert straggler.excess_ms.value == pytest.approx(18.0, rel=0.25)
    assert straggler.late_share == pytest.approx(1.0, abs=0.25)


def test_a_slow_rank_is_fixed_before_the_rest_is_compared() -> None:
    job = noisy(0.05)
    analysis = analysed(replace(job, faults=(Fault("compute", 40.0, ranks=(2,)),)), job)
    assert analysis.bottleneck.ranks == (2,)
    assert varying(analysis) == []

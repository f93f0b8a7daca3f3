"""Ranks that starve together: with prefetching loaders, which one is last is random."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from simulator import Always, Fault, Fixed, Job, Noise, simulate
from support.simulated import analysis_of_job

from stallscope.analysis.ledger.ledger import Ledger
from stallscope.analysis.stragglers.lateness import late_cells
from stallscope.analysis.stragglers.loaders import peer_limit_unknown, with_loaders_at_work
from stallscope.analysis.stragglers.replay import ASSUMED_MS
from stallscope.arrays.local_matrix import LocalMatrix

# A batch takes 150 ms to make, and 35 ms to train on.
STARVING = Job(
    ranks=8,
    steps=160,
    epochs=2,
    prefetch=2,
    input_ms=150,
    compute_ms=30,
    other_ms=1,
    communication=Fixed(4),
    noise=Noise(cv=0.01),
)
WHEN_ASKED = replace(STARVING, prefetch=0)


def steady(job: Job) -> Ledger:
    ledger = analysis_of_job(job).steady
    assert ledger is not None
    return ledger


@pytest.mark.parametrize("ranks", [2, 8])
@pytest.mark.parametrize("seed", range(10))
def test_no_rank_is_named_if_all_loaders_starve(ranks: int, seed: int) -> None:
    verdict = analysis_of_job(replace(STARVING, ranks=ranks, seed=seed)).bottleneck
    assert (verdict.kind, verdict.cause, verdict.ranks) == ("input", "input", ())


@pytest.mark.parametrize("seed", range(5))
def test_faster_loaders_gain_the_step_without_stalls(seed: int) -> None:
    job = replace(STARVING, seed=seed)
    (gain,) = [gain for gain in analysis_of_job(job).what_if if str(gain.fix) == "input"]
    fixed = simulate(replace(job, input_ms=ASSUMED_MS, prefetch=0)).truth.step_ms()
    assert simulate(job).truth.step_ms() - gain.saved_ms.value == pytest.approx(fixed, rel=0.02)


def test_waiting_with_loaders_at_work_becomes_input_and_steps_stay_as_they_are() -> None:
    recorded = steady(replace(STARVING, ranks=2))
    ledger = with_loaders_at_work(recorded)
    assert (ledger.total == recorded.total).all()
    assert (ledger.last == recorded.last).all()
    assert (ledger.arrival <= ledger.last[:, None]).all()
    assert (ledger.compute == recorded.compute).all()
    assert (ledger.other == recorded.other).all()
    entries = ("input", "compute", "other", "imbalance", "allreduce")
    assert (sum(ledger.entry(name) for name in entries) == ledger.total).all()
    # Ranks that alternately get their batches wait for the others in most of the step.
    assert recorded.imbalance.mean() > 0.1 * recorded.total.mean()
    assert np.median(ledger.imbalance) < 0.02 * recorded.total.mean()


def test_full_queues_at_the_start_of_epochs_do_not_hide_a_loaders_pace() -> None:
    slower = Fault("input", 1.5, ranks=(0,))
    recorded = steady(replace(STARVING, ranks=2, steps=80, prefetch=4, faults=(slower,)))
    # The first steps of an epoch use full queues, so the mean is not of a typical step.
    assert np.median(recorded.total) > 1.03 * recorded.total.mean()
    fetch, arrival = (recorded.cells.columns(name, [0, 1]).copy() for name in ("input", "arrival"))
    # In the second epoch rank 1 finds its batch ready, and waits for rank 0's.
    ahead = (recorded.epochs == 1) & (recorded.critical == 0) & (fetch[:, 1] > 10_000_000)
    assert ahead.sum() > 20
    early = np.where(ahead, fetch[:, 1] - 1_000_000, 0)
    fetch[:, 1] -= early
    arrival[:, 1] -= early
    cells = recorded.cells.merged_with(LocalMatrix.of({"input": fetch, "arrival": arrival}))
    ledger = with_loaders_at_work(replace(recorded, cells=cells))
    held = ledger.cells.columns("input", [1])[ahead, 0]
    assert np.median(held) > 0.7 * np.median(recorded.total)


@pytest.mark.parametrize("seed", range(5))
def test_a_slow_loader_is_named_if_the_others_keep_up(seed: int) -> None:
    slow = Fault("input", 120, ranks=(5,), when=Always())
    verdict = analysis_of_job(replace(STARVING, input_ms=30, faults=(slow,), seed=seed)).bottleneck
    assert (verdict.kind, verdict.cause, verdict.ranks) == ("imbalance", "input", (5,))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("ranks", [2, 8])
def test_a_rank_with_slow_batches_on_demand_is_named(ranks: int, seed: int) -> None:
    slow = Fault("input", 70, ranks=(1,))
    job = replace(WHEN_ASKED, ranks=ranks, input_ms=50, faults=(slow,), seed=seed)
    assert with_loaders_at_work(steady(job)).input.sum() == steady(job).input.sum()
    verdict = analysis_of_job(job).bottleneck
    assert (verdict.kind, verdict.cause, verdict.ranks) == ("imbalance", "input", (1,))


@pytest.mark.parametrize("phi", [0.5, 0.9])
def test_batches_on_demand_are_distinguished_from_prefetching_loaders(phi: float) -> None:
    noise = Noise(cv=0.1, phi=phi)
    ledger = steady(replace(WHEN_ASKED, steps=500, noise=noise))
    assert with_loaders_at_work(ledger) is ledger


def test_a_slow_rank_hidden_by_starving_loaders_gains_nothing_and_is_not_the_verdict() -> None:
    slow = Fault("compute", 70, ranks=(1,))
    job = replace(STARVING, faults=(slow,))
    assert simulate(job).truth.step_ms() == pytest.approx(
        simulate(job.healthy()).truth.step_ms(), rel=0.01
    )
    verdict = analysis_of_job(job).bottleneck
    assert (verdict.kind, verdict.ranks) == ("input", ())


@pytest.mark.parametrize("slower_ms", [1.5, 5])
@pytest.mark.parametrize("seed", range(5))
def test_a_slightly_slower_loader_does_not_delay_the_others(slower_ms: float, seed: int) -> None:
    slow = Fault("input", slower_ms, ranks=(1,))
    job = replace(STARVING, steps=500, noise=Noise(cv=0.1), faults=(slow,), seed=seed)
    verdict = analysis_of_job(job).bottleneck
    assert (verdict.kind, verdict.ranks) == ("input", ())


def test_if_the_others_queues_are_full_the_gain_is_a_bound() -> None:
    slow = Fault("input", 120, ranks=(5,))
    analysis = analysis_of_job(replace(STARVING, input_ms=30, faults=(slow,)))
    assert "so their limit is unknown. Fixing rank 5 saves at most" in analysis.bottleneck.evidence
    assert {str(gain.fix) for gain in analysis.what_if if gain.bound} >= {"rank:5", "imbalance"}
    asked = replace(WHEN_ASKED, input_ms=50, faults=(Fault("input", 70, ranks=(1,)),))
    assert "at most" not in analysis_of_job(asked).bottleneck.evidence


@pytest.mark.parametrize(
    ("steps", "seed", "delays_ms", "share"),
    [
        (400, 0, (4, 16), 0.3),
        # Too few steps to tell whether the slow rank's loader works ahead.
        (100, 3, (0, 12), 0.1),
        (100, 5, (0, 12), 0.1),
    ],
)
def test_a_rank_that_waits_for_delivery_of_its_batch_does_not_starve(
    steps: int, seed: int, delays_ms: tuple[int, int], share: float
) -> None:
    slow = Fault("input", 120, ranks=(1,))
    job = replace(STARVING, ranks=2, steps=steps, input_ms=30, noise=Noise(cv=0.1), faults=(slow,))
    recorded = steady(replace(job, seed=seed))
    # A worker process on busy cores delivers a batch late that was made long before.
    least, most = (delay * 1_000_000 for delay in delays_ms)
    late = np.random.default_rng(1).integers(least, most, len(recorded))
    fetch, arrival = (recorded.cells.columns(name, [0, 1]).copy() for name in ("input", "arrival"))
    fetch[:, 0] += late
    arrival[:, 0] += late
    handed_over = LocalMatrix.of({"input": fetch, "arrival": arrival})
    ledger = replace(recorded, cells=recorded.cells.merged_with(handed_over))
    assert (fetch[:, 0] > 0.05 * ledger.total).mean() > share
    assert with_loaders_at_work(ledger) is ledger
    assert peer_limit_unknown(ledger, [1])


def test_a_rank_that_is_slow_now_that_loaders_starve_gains_what_it_would_without_them() -> None:
    job = replace(STARVING, faults=(Fault("compute", 70, ranks=(1,)),), seed=2)
    (gain,) = [gain for gain in analysis_of_job(job).what_if if str(gain.fix) == "input"]
    fixed = simulate(replace(job, input_ms=2, prefetch=0)).truth.step_ms()
    assert simulate(job).truth.step_ms() - gain.saved_ms.value == pytest.approx(fixed, rel=0.02)


def test_the_finding_states_how_much_of_the_imbalance_is_input() -> None:
    codes = [finding.code for finding in analysis_of_job(replace(STARVING, ranks=2)).findings]
    assert "ranks_starve_in_turn" in codes
    codes = [finding.code for finding in analysis_of_job(replace(WHEN_ASKED, ranks=2)).findings]
    assert "ranks_starve_in_turn" not in codes


def test_where_inputs_vary_by_any_factor_nothing_is_surely_late() -> None:
    ledger = steady(replace(WHEN_ASKED, ranks=2))
    # One batch in ten is ready at once, the others take 0.1 s.
    at_once = np.arange(len(ledger)) % 10 == 0
    fetch = np.where(at_once[:, None], 0, 100_000_000) + np.zeros((1, 2), np.int64)
    cells = late_cells(
        replace(ledger, cells=ledger.cells.merged_with(LocalMatrix.of({"input": fetch}))), [0, 1]
    )
    assert not cells.of_stage("input").sure.any()

"""Causality bounds late timestamps, and the ledger stays exact."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from simulator import Clocks, Job, simulate
from support.late_timestamps import made_late

from stallscope.analysis import ENTRIES, Analysis, analyse
from stallscope.analysis.ledger.build import build_ledger
from stallscope.analysis.steps.alignment import AlignedSteps, align
from stallscope.analysis.steps.causality import Bounds
from stallscope.arrays.blocks import LATEST, NULL
from stallscope.run import Run

MS = 1_000_000
ONE_HOST = Job(ranks=4, ranks_per_host=4, steps=400)
TWO_HOSTS = replace(ONE_HOST, ranks_per_host=2, clocks=Clocks(offset_s=3600, drift_ppm=20))
RANK = 2
LATE_STEPS = list(range(50, 400, 35))


@pytest.fixture(scope="module")
def clean() -> Run:
    return simulate(ONE_HOST).run


@pytest.fixture(scope="module")
def late(clean: Run) -> Run:
    return made_late(clean, RANK, "ready", LATE_STEPS, 60 * MS)


def positions(aligned: AlignedSteps) -> np.ndarray:
    return np.searchsorted(aligned.steps, LATE_STEPS)


def test_on_one_clock_ready_is_no_later_than_the_first_reduced(late: Run) -> None:
    aligned = align(late, 0)
    assert (aligned.ready.max(axis=1) <= aligned.reduced.min(axis=1)).all()
    at = positions(aligned)
    np.testing.assert_array_equal(aligned.ready[at, RANK], aligned.reduced[at].min(axis=1))


def test_every_late_timestamp_is_found_by_step_and_rank(clean: Run, late: Run) -> None:
    aligned, true = align(late, 0), align(clean, 0)
    at = positions(aligned)
    np.testing.assert_array_equal(np.sort(aligned.late.steps), at)
    assert set(aligned.late.ranks) == {RANK}
    recorded = np.minimum(true.ready[at, RANK] + 60 * MS, true.end[at, RANK])
    np.testing.assert_array_equal(
        aligned.late.per_step(len(aligned.steps))[at], recorded - true.reduced[at].min(axis=1)
    )
    assert aligned.late.per_rank(4).tolist() == [0, 0, len(LATE_STEPS), 0]


def test_steps_last_as_long_as_without_late_timestamps(clean: Run, late: Run) -> None:
    ledger, true = build_ledger(align(late, 0)), build_ledger(align(clean, 0))
    np.testing.assert_array_equal(ledger.reduced, true.reduced)
    np.testing.assert_array_equal(ledger.total, true.total)
    np.testing.assert_array_equal(sum(ledger.entry(name) for name in ENTRIES), ledger.total)
    assert ledger.allreduce.min() == 0
    others = ~np.isin(ledger.steps, LATE_STEPS)
    np.testing.assert_array_equal(ledger.allreduce[others], true.allreduce[others])


def test_data_that_is_late_with_ready_is_bounded_as_well(clean: Run) -> None:
    late = made_late(clean, RANK, "ready", LATE_STEPS, 60 * MS)
    aligned = align(made_late(late, RANK, "data", LATE_STEPS, 90 * MS), 0)
    assert (aligned.data <= aligned.ready).all()
    assert (aligned.begin <= aligned.data).all()
    ledger = build_ledger(aligned)
    assert ledger.compute.min() >= 0
    np.testing.assert_array_equal(sum(ledger.entry(name) for name in ENTRIES), ledger.total)


def test_between_hosts_the_bound_is_as_wide_as_the_clocks_are_uncertain() -> None:
    run = simulate(replace(TWO_HOSTS, jitter_ms=1.0)).run
    aligned = align(made_late(run, RANK, "ready", LATE_STEPS, 60 * MS), 0)
    at = positions(aligned)
    clocks = aligned.clocks
    margin = float((2 * clocks.statistical + clocks.systematic).sum())
    same_clock = aligned.reduced[at][:, clocks.of_rank == clocks.of_rank[RANK]].min(axis=1)
    everyone = aligned.reduced[at].min(axis=1)
    assert (aligned.ready[at, RANK] <= np.minimum(same_clock, everyone + int(margin) + 1)).all()
    assert margin > 0
    # Ranks that were not late keep their timestamps, also if clocks are slightly off.
    assert set(aligned.late.ranks) == {RANK}


def test_a_clock_that_could_not_be_compared_bounds_no_other() -> None:
    ready = np.array([[100, 500], [100, 120]])
    reduced = np.array([[200, 600], [90, LATEST]])
    bounds = Bounds.of(ready, reduced, np.array([0.0, np.inf]))
    assert bounds.at.tolist() == [1]
    assert bounds.latest.tolist() == [[90, LATEST]]


def test_missing_timestamps_bound_nothing_and_are_not_late() -> None:
    ready = np.array([[NULL], [100]])
    reduced = np.array([[50], [LATEST]])
    assert not len(Bounds.of(ready, reduced, np.zeros(1)).at)


def test_a_step_in_which_a_clock_was_set_is_left_alone() -> None:
    ready, reduced = np.array([[100], [300]]), np.array([[50], [250]])
    assert Bounds.of(ready, reduced, np.zeros(1), jumps=[0]).at.tolist() == [1]


def test_a_run_without_violations_is_unchanged(clean: Run) -> None:
    aligned = align(clean, 0)
    assert not len(aligned.late.steps)
    clocks = analyse(clean).clocks
    assert clocks is not None
    assert (clocks.late, clocks.late_ms, clocks.late_by_rank) == (0.0, 0.0, (0.0,) * 4)


def test_late_timestamps_add_uncertainty_to_compute_and_allreduce(clean: Run, late: Run) -> None:
    analysis = analyse(late)
    assert analysis.clocks is not None
    assert analysis.clocks.late == pytest.approx(len(LATE_STEPS) / 400)
    assert analysis.clocks.late_by_rank[RANK] == analysis.clocks.late
    assert analysis.steady is not None
    amount = float(analysis.steady.late.mean()) / 1e6
    assert amount > 0
    for name in ("compute", "allreduce"):
        assert half_width(analysis, name) > amount
    for name in ("input", "other"):
        assert half_width(analysis, name) == pytest.approx(
            half_width(analyse(clean), name), rel=0.2
        )


def half_width(analysis: Analysis, name: str) -> float:
    entry = analysis.entry(name)
    assert entry is not None
    assert entry.ci95_ms is not None
    return (entry.ci95_ms[1] - entry.ci95_ms[0]) / 2

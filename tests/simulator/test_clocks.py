"""Hosts' clocks differ as requested, and the truth knows the differences."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
from simulator import Clocks, Job, Jump, Simulated, Slew, simulate

from stallscope.analysis.steps.alignment import align

JOB = Job(ranks=8, ranks_per_host=2, steps=300, jitter_ms=0.0)


def column(simulated: Simulated, name: str) -> npt.NDArray[np.int64]:
    """Steps × ranks."""
    job = simulated.job
    return simulated.run.steps[name].to_numpy().reshape(job.ranks, job.steps).T


def with_clocks(clocks: Clocks) -> Simulated:
    return simulate(replace(JOB, clocks=clocks))


@pytest.mark.parametrize(
    "clocks",
    [
        Clocks(offset_s=100),
        Clocks(offset_s=100, drift_ppm=30),
        Clocks(slews=(Slew(2, 50, 150, 500.0),)),
        Clocks(jumps=(Jump(1, 40, 80.0), Jump(3, 60, -25.0), Jump(3, 200, 1.0))),
        Clocks(offsets_ms=(0, 7000, -20, 86_400_000)),
    ],
)
def test_the_offset_brings_every_host_to_the_true_time(clocks: Clocks) -> None:
    simulated = with_clocks(clocks)
    truth = simulated.truth
    assert truth.clock_offset.shape == (300, 4)
    back = column(simulated, "reduced") - np.repeat(truth.clock_offset, 2, axis=1)
    np.testing.assert_array_equal(back, truth.reduced)
    assert not truth.clock_offset[:, 0].any()
    # Clocks do not change what happens.
    plain = simulate(JOB).truth
    np.testing.assert_array_equal(truth.ready - truth.ready[0, 0], plain.ready - plain.ready[0, 0])


def test_offsets_are_within_limits_and_no_clock_is_before_its_boot() -> None:
    simulated = simulate(replace(JOB, ranks=400, steps=3, clocks=Clocks(offset_s=50)))
    offset = simulated.truth.clock_offset[0] / 1e9
    assert np.abs(offset).max() <= 50
    assert np.abs(offset).max() > 45
    assert min(log.anchor for log in simulated.run.logs) > 0


def test_drift_grows_with_time() -> None:
    simulated = simulate(replace(JOB, ranks=2000, clocks=Clocks(drift_ppm=20)))
    truth = simulated.truth
    elapsed = truth.reduced_first[-1] - truth.reduced_first[0]
    ppm = (truth.clock_offset[-1] - truth.clock_offset[0]) / elapsed * 1e6
    assert ppm[0] == 0
    assert ppm[1:].std() == pytest.approx(20, rel=0.1)


def test_a_slew_ends_and_its_offset_stays() -> None:
    truth = with_clocks(Clocks(slews=(Slew(2, 50, 150, 500.0),))).truth
    offset = truth.clock_offset[:, 2]
    assert not truth.clock_offset[:, [0, 1, 3]].any()
    assert not offset[:50].any()
    gained = (truth.reduced_first[150] - truth.reduced_first[49]) * 500e-6
    assert (offset[150:] == offset[150]).all()
    assert offset[150] == pytest.approx(gained, abs=1000)
    assert (np.diff(offset[49:151]) > 0).all()


def test_a_jump_happens_within_the_compute_of_its_step() -> None:
    simulated = with_clocks(Clocks(jumps=(Jump(1, 40, 80.0),)))
    plain = simulate(JOB)
    moved = {
        name: (column(simulated, name) - column(plain, name)) / 1e6 for name in ("data", "ready")
    }
    assert not moved["data"][:41].any()
    assert (moved["data"][41:, [2, 3]] == 80).all()
    assert (moved["ready"][40:, [2, 3]] == 80).all()
    assert not moved["ready"][:, [0, 1, 4, 5, 6, 7]].any()


def test_the_alignment_finds_the_offsets() -> None:
    simulated = with_clocks(Clocks(offset_s=100, drift_ppm=30, slews=(Slew(2, 50, 150, 500.0),)))
    aligned = align(simulated.run, 0)
    # Around the slew's ends the running median cuts corners.
    within = slice(80, 120)
    for name in ("ready", "reduced"):
        estimate, true = getattr(aligned, name)[within], getattr(simulated.truth, name)[within]
        np.testing.assert_allclose(estimate - true, 0, atol=100_000)


def test_each_host_is_a_separate_clock_domain() -> None:
    logs = simulate(JOB).run.logs
    domains = [log.clock_domain for log in logs]
    assert len(set(domains)) == 4
    assert domains[0] == domains[1] != domains[2]

"""The ledger adds up, and assigns time to where it was spent."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from simulator import Fault, Noise, simulate
from simulator import Job as Simulation
from support.step_logs import Job, write_job

from stallscope.analysis import ENTRIES, analyse
from stallscope.analysis.ledger.arrivals import ranks_by_arrival
from stallscope.analysis.ledger.build import build_ledger
from stallscope.analysis.steps.alignment import align
from stallscope.parsers import read


def ledger_of(folder: Path, job: Job):
    write_job(folder, job)
    return build_ledger(align(read(str(folder))[0], job.generation))


@pytest.mark.parametrize(
    "job",
    [
        Job(ranks=1, steps=50),
        Job(ranks=2, steps=50, noise=0.3),
        Job(ranks=5, steps=200, noise=0.5, epochs=4, validation_ms=40, checkpoint_ms=15),
        Job(ranks=8, hosts=("a", "b"), clock_offset_ms=(0, 5000), noise=0.1),
    ],
)
def test_every_step_adds_up_to_the_nanosecond(tmp_path: Path, job: Job) -> None:
    ledger = ledger_of(tmp_path, job)
    assert len(ledger) == job.steps
    parts = sum(ledger.entry(name) for name in ENTRIES)
    np.testing.assert_array_equal(parts, ledger.total)
    assert (ledger.imbalance >= 0).all()
    assert (ledger.allreduce >= 0).all()


def test_steps_and_gaps_cover_the_wall_clock_once(tmp_path: Path) -> None:
    job = Job(ranks=3, steps=90, epochs=3, validation_ms=40, checkpoint_ms=15, noise=0.2)
    ledger = ledger_of(tmp_path, job)
    elapsed = np.diff(ledger.reduced)
    np.testing.assert_array_equal(elapsed, (ledger.total + ledger.gaps.sum(axis=1))[1:])
    assert (ledger.gaps >= 0).all()


def test_validation_and_checkpoints_are_not_part_of_steps(tmp_path: Path) -> None:
    plain = ledger_of(tmp_path / "plain", Job(steps=60, epochs=3))
    busy = ledger_of(
        tmp_path / "busy", Job(steps=60, epochs=3, validation_ms=400, checkpoint_ms=100)
    )
    np.testing.assert_allclose(busy.total[1:], plain.total[1:], rtol=0.05)
    between = busy.gaps.sum(axis=0) / 1e6
    # Three epochs; no step follows the last one.
    assert between[0] == pytest.approx(2 * 400, rel=0.01)
    assert between[1] == pytest.approx(2 * 100, rel=0.01)


def test_a_slow_rank_is_critical_and_its_stage_the_cause(tmp_path: Path) -> None:
    for stage, expected in (("input", 0), ("compute", 1), ("other", 2)):
        ledger = ledger_of(tmp_path / stage, Job(ranks=4, slow={(2, stage): 10.0}))
        assert (ledger.critical[1:] == 2).mean() > 0.99
        assert (ledger.cause[1:] == expected).mean() > 0.99
        assert ledger.imbalance[1:].mean() / 1e6 == pytest.approx(10, rel=0.1)


def test_waiting_is_not_booked_as_communication(tmp_path: Path) -> None:
    ledger = ledger_of(tmp_path, Job(ranks=4, slow={(0, "compute"): 30.0}))
    assert ledger.allreduce[1:].mean() / 1e6 == pytest.approx(3.0, rel=0.05)
    waits = ledger.wait[1:].mean(axis=0) / 1e6
    assert waits[0] == pytest.approx(0, abs=0.1)
    assert waits[1:] == pytest.approx([30, 30, 30], rel=0.05)


def test_every_ranks_own_stages_and_its_waiting_fill_the_step(tmp_path: Path) -> None:
    job = Job(ranks=3, steps=90, epochs=3, noise=0.3, validation_ms=40, slow={(1, "other"): 5.0})
    ledger = ledger_of(tmp_path, job)
    filled = ledger.arrival + ledger.wait + ledger.allreduce[:, None]
    np.testing.assert_array_equal(filled, np.repeat(ledger.total[:, None], 3, axis=1))
    assert (ledger.wait >= 0).all()


def test_hosts_with_different_clocks_are_aligned(tmp_path: Path) -> None:
    one = ledger_of(tmp_path / "one", Job(ranks=4, slow={(3, "compute"): 8.0}))
    two = ledger_of(
        tmp_path / "two",
        Job(ranks=4, slow={(3, "compute"): 8.0}, hosts=("a", "b"), clock_offset_ms=(0, 86_400_000)),
    )
    for name in ENTRIES:
        np.testing.assert_allclose(two.entry(name).mean(), one.entry(name).mean(), rtol=0.02)


def test_steps_that_a_rank_lacks_are_left_out_and_counted(tmp_path: Path) -> None:
    paths = write_job(tmp_path, Job(ranks=2, steps=100))
    lines = paths[1].read_text().splitlines(keepends=True)
    paths[1].write_text("".join(line for line in lines if not line.startswith("step,50,")))
    analysis = analyse(read(str(tmp_path))[0])
    assert analysis.ledger is not None
    assert 50 not in analysis.ledger.steps
    # Step 51 still starts where step 50 was reduced, which rank 0 knows.
    assert 51 in analysis.ledger.steps
    assert any("1 of 100 steps" in warning for warning in analysis.warnings)


def test_a_repeated_first_epoch_step_is_not_warm_up(tmp_path: Path) -> None:
    write_job(tmp_path, Job(steps=200, epochs=4))
    analysis = analyse(read(str(tmp_path))[0])
    assert analysis.warm_up[0]
    assert not analysis.warm_up[[50, 100, 150]].any()
    assert analysis.warm_up.sum() < 5


def test_the_jobs_time_adds_up(tmp_path: Path) -> None:
    write_job(tmp_path, Job(steps=200, epochs=4, validation_ms=100, checkpoint_ms=50))
    job = analyse(read(str(tmp_path))[0]).job
    parts = job.startup + job.warmup + job.steps + job.validation + job.checkpoint + job.epoch_gap
    assert parts == pytest.approx(job.total, abs=1e-9)
    assert job.validation == pytest.approx(0.4, rel=0.02)
    assert job.checkpoint == pytest.approx(0.2, rel=0.02)
    # The process started half a second before its log, the first step a tenth after that.
    assert job.startup == pytest.approx(0.6, abs=0.01)


def test_steps_that_a_few_ranks_lack_are_in_the_ledger() -> None:
    simulated = simulate(Simulation(ranks=16, steps=400, lost_rows=0.01, noise=Noise(cv=0.05)))
    found = analyse(simulated.run)
    ledger = found.ledger
    assert ledger is not None
    assert found.coverage.partial > 20
    assert found.coverage.unused < 10
    assert found.coverage.complete + found.coverage.partial == len(ledger)
    assert any("a few ranks' timestamps are missing" in warning for warning in found.warnings)
    entries = sum(ledger.entry(name) for name in ENTRIES)
    assert (entries == ledger.total).all()
    # A rank is never critical in a step that it did not record.
    assert ledger.measured[np.arange(len(ledger)), ledger.critical].all()
    truth = simulated.truth.ledger_means_ms(1)
    for name in ENTRIES:
        assert found.entry(name).ms == pytest.approx(truth[name], rel=0.02, abs=0.1)  # type: ignore[union-attr]


def test_steps_that_too_many_ranks_lack_are_left_out() -> None:
    simulated = simulate(Simulation(ranks=4, steps=300, cut_ranks={2: 200}))
    found = analyse(simulated.run)
    assert (found.coverage.complete, found.coverage.partial, found.coverage.unused) == (200, 0, 100)


def test_every_rank_has_its_own_mean_over_what_it_measured() -> None:
    simulated = simulate(
        Simulation(ranks=16, steps=300, lost_rows=0.02, faults=(Fault("compute", 30, ranks=(3,)),))
    )
    found = analyse(simulated.run)
    truth = simulated.truth.compute[1:].mean(axis=0) / 1e6
    assert [rank.compute_ms for rank in found.ranks] == pytest.approx(truth.tolist(), rel=0.01)


@pytest.mark.parametrize("ranks", [1, 2, 7, 8, 100, 400, 401])
@pytest.mark.parametrize("apart", [1, 10**6])
def test_the_order_of_ranks_is_that_of_their_arrivals(ranks: int, apart: int) -> None:
    """Many of them ready at once, or none; some ranks are missing in the last steps."""
    arrival = np.random.default_rng(1).integers(0, ranks * apart, (60, ranks))
    measured = np.ones(arrival.shape, bool)
    measured[40:, : ranks // 3] = False
    reference, second, critical = ranks_by_arrival(arrival, measured)
    at = np.arange(len(arrival))
    for step in at:
        own = np.sort(arrival[step][measured[step]])
        found = arrival[step, [reference[step], second[step], critical[step]]]
        assert found.tolist() == [own[(len(own) - 1) // 2], own[-min(len(own), 2)], own[-1]]
    assert measured[at, reference].all()
    assert measured[at, second].all()
    assert measured[at, critical].all()
    assert ((second != critical) | (ranks == 1)).all()


def test_the_last_of_ranks_ready_at_once_is_not_always_the_lowest() -> None:
    arrival = np.random.default_rng(1).integers(0, 3, (300, 100))
    _, _, critical = ranks_by_arrival(arrival, np.ones(arrival.shape, bool))
    assert (critical > (arrival == 2).argmax(axis=1)).mean() > 0.5

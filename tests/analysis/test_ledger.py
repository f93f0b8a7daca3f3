"""The ledger adds up, and assigns time to where it was spent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from simulator import Bursts, Fault, Noise, simulate, write_logs
from simulator import Job as Simulation
from support.step_logs import Job, write_job

from stallscope.analysis import ENTRIES, analyse
from stallscope.analysis.ledger.build import build_ledger, ranks_by_arrival
from stallscope.analysis.steps.alignment import align
from stallscope.analysis.views.log_health import rank_logs
from stallscope.analysis.views.rank_maps import group_lateness
from stallscope.formatting.lists import ranks_in_words
from stallscope.parsers import read
from stallscope.run import Run
from stallscope.text.figure_words import health, lacks


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
    one_host = ledger_of(tmp_path / "one", Job(ranks=4, slow={(3, "compute"): 8.0}))
    two_hosts = ledger_of(
        tmp_path / "two",
        Job(ranks=4, slow={(3, "compute"): 8.0}, hosts=("a", "b"), clock_offset_ms=(0, 86_400_000)),
    )
    for name in ENTRIES:
        np.testing.assert_allclose(
            two_hosts.entry(name).mean(), one_host.entry(name).mean(), rtol=0.02
        )


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
    analysis = analyse(simulated.run)
    ledger = analysis.ledger
    assert ledger is not None
    assert analysis.coverage.partial > 20
    assert analysis.coverage.unused < 10
    assert analysis.coverage.complete + analysis.coverage.partial == len(ledger)
    assert any("a few ranks' timestamps are missing" in warning for warning in analysis.warnings)
    entries = sum(ledger.entry(name) for name in ENTRIES)
    assert (entries == ledger.total).all()
    # A rank is never critical in a step that it did not record.
    assert ledger.measured[np.arange(len(ledger)), ledger.critical].all()
    truth = simulated.truth.ledger_means_ms(1)
    for name in ENTRIES:
        assert analysis.entry(name).ms == pytest.approx(truth[name], rel=0.02, abs=0.1)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("faults", "steps"),
    [((), (200, 100, 0)), ((Fault("compute", 60, ranks=(2,)),), (200, 0, 100))],
    ids=["waiting for the rank costs nothing", "the others wait for it"],
)
def test_steps_that_a_cut_log_lacks(faults: tuple[Fault, ...], steps: tuple[int, int, int]) -> None:
    run = simulate(Simulation(ranks=4, steps=300, cut_ranks={2: 200}, faults=faults)).run
    coverage = analyse(run).coverage
    assert (coverage.complete, coverage.partial, coverage.unused) == steps


def test_steps_that_too_many_ranks_lack_are_left_out() -> None:
    simulated = simulate(Simulation(ranks=4, steps=300, cut_ranks={0: 200, 2: 200, 3: 200}))
    coverage = analyse(simulated.run).coverage
    assert (coverage.complete, coverage.partial, coverage.unused) == (200, 0, 100)


SLOW = 2
STEPS = 400
FAULTS = {
    "compute": Fault("compute", 60, ranks=(SLOW,)),
    "input": Fault("input", 60, ranks=(SLOW,)),
    "bursts": Fault("compute", 200, ranks=(SLOW,), when=Bursts(20, 2)),
    "input of all": Fault("input", 60),
    "none": Fault("compute", 0),
}


def cut_run(run: Run, ranks: Sequence[int], kept: Sequence[range]) -> Run:
    """Return a run in which some ranks' logs only have these steps, and no end."""
    steps = [step for part in kept for step in part]

    def rows(table: pa.Table) -> pa.Table:
        lost = ~np.isin(table["step"].to_numpy(), steps) & np.isin(table["rank"].to_numpy(), ranks)
        return table.filter(pa.array(~lost))

    logs = tuple(replace(log, ended=log.ended and log.rank not in ranks) for log in run.logs)
    intervals = rows(run.intervals)
    return replace(run, logs=logs, steps=rows(run.steps), intervals=intervals)


@pytest.mark.broad
@pytest.mark.parametrize(
    ("size", "name"),
    [*((size, name) for size in (4, 8) for name in FAULTS), (64, "compute"), (64, "bursts")],
)
def test_a_cut_log_never_hides_what_shows_without_it(size: int, name: str) -> None:
    job = Simulation(ranks=size, steps=STEPS, faults=(FAULTS[name],), epochs=2, validation_ms=300.0)
    run = simulate(job).run
    whole = analyse(run)
    for ranks in ((0,), (SLOW,), (1, size - 1)):
        without = analyse(simulate(replace(job, lost_ranks=ranks)).run)
        for kept in (
            [range(20)],
            [range(150)],
            [range(380)],
            [range(250, STEPS)],
            [range(50), range(350, STEPS)],
        ):
            analysis = analyse(cut_run(run, ranks, kept))
            verdicts = [
                (result.bottleneck.kind, result.bottleneck.ranks)
                for result in (analysis, without, whole)
            ]
            assert verdicts[0] in verdicts[1:], (ranks, kept)
            assert analysis.steady is not None
            assert without.steady is not None
            # Only the slow rank's steps are worth more than all steps.
            if ranks != (SLOW,):
                assert len(analysis.steady) >= 0.97 * len(without.steady), (ranks, kept)
            # Lost steps are steps, not time between epochs or before the first step.
            job_time = analysis.job
            assert job_time.total == pytest.approx(without.job.total, abs=0.1)
            assert job_time.epoch_gap < 0.1
            assert job_time.startup < 1.5
            in_steps = without.job.warmup + without.job.steps
            assert job_time.warmup + job_time.steps == pytest.approx(in_steps, abs=1)
            named = " ".join(analysis.warnings)
            assert ranks_in_words(ranks) in named or len(kept[0]) == 380, (ranks, kept)


@pytest.mark.parametrize(
    ("kept", "kind", "steps"), [(150, "imbalance", 149), (20, "insufficient_data", STEPS - 1)]
)
def test_a_cut_log_of_two(kept: int, kind: str, steps: int) -> None:
    job = Simulation(ranks=2, steps=STEPS, faults=(Fault("compute", 60, ranks=(1,)),))
    analysis = analyse(cut_run(simulate(job).run, [1], [range(kept)]))
    assert analysis.bottleneck.kind == kind
    assert analysis.steady is not None
    assert len(analysis.steady) == steps
    assert f"the log of rank 1 lacks steps from step {kept} on" in " ".join(analysis.warnings)


@pytest.mark.parametrize("share", [0.05, 0.5, 0.999])
@pytest.mark.parametrize("rank", [0, 1])
def test_a_log_cut_at_any_byte_is_as_good_as_none(tmp_path: Path, share: float, rank: int) -> None:
    job = Simulation(ranks=4, steps=STEPS, faults=(FAULTS["compute"],))
    path = write_logs(simulate(job), tmp_path)[rank]
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * share)])
    (run,) = read(str(tmp_path))
    analysis = analyse(run)
    assert (analysis.bottleneck.kind, analysis.bottleneck.ranks) == ("imbalance", (SLOW,))
    assert analysis.steady is not None
    assert len(analysis.steady) >= STEPS - 5


def test_steps_that_no_log_has_are_named_and_their_time_is_in_no_step() -> None:
    run = simulate(Simulation(ranks=4, steps=STEPS)).run
    whole, gapped = (
        analyse(cut_run(run, range(4), kept))
        for kept in ([range(STEPS)], [range(100), range(201, 300), range(301, STEPS)])
    )
    assert gapped.coverage.holes == ((100, 200), (300, 300))
    assert "no log has 102 steps (100–200 and 300): this time is in no step" in gapped.warnings
    assert (
        f"2 of {STEPS - 102} steps are not in the ledger: the step before is missing"
        in gapped.warnings
    )
    assert gapped.step is not None
    job, ms = gapped.job, gapped.step.mean
    assert job.unrecorded * 1e3 == pytest.approx(102 * ms, rel=0.02)
    assert job.steps * 1e3 == pytest.approx((STEPS - 1 - 102) * ms, rel=0.02)
    assert job.startup == pytest.approx(whole.job.startup, abs=0.01)
    assert job.total == pytest.approx(whole.job.total)
    # What happened in the meantime is unknown: it is not lost.
    assert whole.job.unrecorded == 0
    assert gapped.goodput is not None
    assert whole.goodput is not None
    assert gapped.goodput.fraction == pytest.approx(whole.goodput.fraction, abs=0.01)
    assert health(gapped, rank_logs(run))[0] == "These logs are not whole"
    assert "No rank has 102 steps (100–200 and 300)." in lacks(gapped, rank_logs(gapped.run))


def test_the_ranks_that_lack_timestamps_of_unused_steps_are_named() -> None:
    run = simulate(Simulation(ranks=8, steps=STEPS, faults=(FAULTS["compute"],))).run
    analysis = analyse(cut_run(run, [SLOW], [range(200)]))
    assert (
        f"{STEPS - 200} of {STEPS} steps are not in the ledger: rank {SLOW} lacks timestamps in "
        f"{STEPS - 200} of them"
    ) in analysis.warnings


def test_incomplete_ranks_are_named_with_their_steps() -> None:
    run = simulate(Simulation(ranks=8, steps=STEPS)).run
    run = cut_run(cut_run(run, [5], [range(60)]), [6, 7], [range(10, 12)])
    assert [
        (rank.rank, rank.steps, rank.first, rank.last, rank.left_out)
        for rank in run.incomplete_ranks
    ] == [(5, 60, 0, 59, False), (6, 2, 10, 11, True), (7, 2, 10, 11, True)]
    warnings = analyse(run).warnings
    assert "the log of rank 5 lacks steps from step 60 on: 60 of 400 are there" in warnings
    assert any(
        warning.startswith(
            "the logs of ranks 6 and 7 lack steps before step 10 and from step 12 on"
        )
        for warning in warnings
    )
    assert run.unknown_ranks == [5, 6, 7]
    assert run.missing_ranks == []


def test_every_rank_has_its_own_mean_over_what_it_measured() -> None:
    simulated = simulate(
        Simulation(ranks=16, steps=300, lost_rows=0.02, faults=(Fault("compute", 30, ranks=(3,)),))
    )
    analysis = analyse(simulated.run)
    truth = simulated.truth.compute[1:].mean(axis=0) / 1e6
    assert [rank.compute_ms for rank in analysis.ranks] == pytest.approx(truth.tolist(), rel=0.01)


def test_a_rank_is_last_as_often_everywhere_as_in_the_steps_that_it_measured() -> None:
    job = Simulation(ranks=8, steps=STEPS, lost_rows=0.05, faults=(FAULTS["compute"],))
    run = simulate(job).run
    analysis = analyse(run)
    (straggler,) = analysis.stragglers
    shares = {rank.rank: rank.critical_share for rank in analysis.ranks}
    assert straggler.ranks == (SLOW,)
    # In the other steps its row is lost.
    assert shares[SLOW] == straggler.late_share == 1.0
    assert analysis.steady is not None
    (host,) = group_lateness(analysis.steady, [rank.host for rank in analysis.ranks])
    assert host.critical_share == 1.0


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
        arrivals = np.sort(arrival[step][measured[step]])
        picks = arrival[step, [reference[step], second[step], critical[step]]]
        assert picks.tolist() == [
            arrivals[(len(arrivals) - 1) // 2],
            arrivals[-min(len(arrivals), 2)],
            arrivals[-1],
        ]
    assert measured[at, reference].all()
    assert measured[at, second].all()
    assert measured[at, critical].all()
    assert ((second != critical) | (ranks == 1)).all()


def test_the_last_of_ranks_ready_at_once_is_not_always_the_lowest() -> None:
    arrival = np.random.default_rng(1).integers(0, 3, (300, 100))
    _, _, critical = ranks_by_arrival(arrival, np.ones(arrival.shape, bool))
    assert (critical > (arrival == 2).argmax(axis=1)).mean() > 0.5

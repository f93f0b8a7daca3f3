"""Several hosts' clocks are aligned, jumps found, and causality violations reported."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from simulator import Clocks, Fault, Job, Jump, Simulated, Slew, simulate

from stallscope.analysis import Analysis, analyse
from stallscope.analysis.findings.log_quality import clock_findings
from stallscope.analysis.ledger.build import build_ledger
from stallscope.analysis.ledger.ledger import Ledger
from stallscope.analysis.steps.alignment import align
from stallscope.run import Run

APART = Clocks(offset_s=3600, drift_ppm=20)
TWO_HOSTS = Job(ranks=16, ranks_per_host=8, steps=600, clocks=APART)
ALONE = replace(TWO_HOSTS, ranks=4, ranks_per_host=1)


def allreduce_error_ms(simulated: Simulated, ledger: Ledger) -> float:
    return float((ledger.allreduce - simulated.truth.allreduce[ledger.steps]).mean()) / 1e6


@pytest.mark.parametrize("job", [TWO_HOSTS, ALONE])
@pytest.mark.parametrize(
    "clocks",
    [
        APART,
        replace(APART, slews=(Slew(1, 200, 400, 500),)),
        replace(APART, jumps=(Jump(1, 300, 30),)),
        replace(APART, jumps=(Jump(1, 300, -2000), Jump(1, 420, 2000))),
    ],
    ids=["drift", "slew", "jump", "two jumps"],
)
def test_allreduce_and_the_critical_rank_are_right(job: Job, clocks: Clocks) -> None:
    simulated = simulate(replace(job, clocks=clocks))
    ledger = build_ledger(align(simulated.run, 0))
    assert allreduce_error_ms(simulated, ledger) == pytest.approx(0, abs=0.05)
    assert (ledger.critical == simulated.truth.critical[ledger.steps]).mean() > 0.98


def test_one_clock_needs_no_alignment() -> None:
    simulated = simulate(replace(TWO_HOSTS, ranks_per_host=16))
    aligned = align(simulated.run, 0)
    assert aligned.clocks.method == "one clock"
    assert not aligned.clocks.offset.any()
    assert aligned.clocks.bound is None
    assert allreduce_error_ms(simulated, build_ledger(aligned)) == 0


@pytest.mark.parametrize("ms", [20.0, -20.0, 5000.0])
@pytest.mark.parametrize("host", [1, 2])
def test_a_jump_is_found_at_its_step_and_on_its_host(host: int, ms: float) -> None:
    jumps = (Jump(host, 250, ms),)
    job = replace(TWO_HOSTS, ranks=12, ranks_per_host=4, clocks=replace(APART, jumps=jumps))
    analysis = analyse(simulate(job).run)
    assert analysis.clocks is not None
    ((clock, step, size),) = analysis.clocks.jumps
    assert (clock, step) == (f"clock of host-{host}", 250)
    assert size == pytest.approx(ms, abs=0.5)
    assert "clock_jumped" in [finding.code for finding in analysis.findings]
    # The step's stages contain the jump on that host: it is in no figure.
    assert analysis.ledger is not None
    assert analysis.ledger.input.min() > 0
    assert analysis.ledger.compute.max() < 1e9
    assert analysis.stragglers == ()


def test_scattered_completions_are_not_jumps() -> None:
    analysis = analyse(simulate(replace(TWO_HOSTS, jitter_ms=5.0)).run)
    assert analysis.clocks is not None
    assert analysis.clocks.jumps == ()
    assert analysis.clocks.method == "completions"


def test_the_uncertainty_contains_the_error_of_the_offsets() -> None:
    for seed in range(5):
        simulated = simulate(replace(TWO_HOSTS, jitter_ms=0.5, seed=seed + 1))
        clocks = align(simulated.run, 0).clocks
        error = np.abs(clocks.offset - simulated.truth.clock_offset)[:, 1]
        assert np.median(error) < clocks.uncertainty[-1]
        assert clocks.uncertainty[-1] < 5e6


def test_the_bound_is_the_largest_possible_hidden_skew() -> None:
    simulated = simulate(replace(TWO_HOSTS, skew=0.5))
    clocks = align(simulated.run, 0).clocks
    hidden = np.median(clocks.offset - simulated.truth.clock_offset, axis=0)[1]
    assert hidden == pytest.approx(10e6, rel=0.1)
    assert clocks.bound is not None
    assert hidden < clocks.bound


def test_a_rank_that_is_less_slow_than_the_skew_is_not_named() -> None:
    job = replace(TWO_HOSTS, ranks=8, ranks_per_host=4, jitter_ms=8.0)
    slow = replace(job, faults=(Fault("compute", 9.0, ranks=(5,)),))
    analysis = analyse(simulate(slow).run)
    assert analysis.clocks is not None
    assert analysis.clocks.skew_ms is not None
    assert analysis.clocks.skew_ms > 9.0
    assert [straggler.ranks for straggler in analysis.stragglers if straggler.ranks] == []
    sharp = analyse(simulate(replace(slow, jitter_ms=0.05)).run)
    assert [straggler.ranks for straggler in sharp.stragglers] == [(5,)]


def shifted(run: Run, rank: int, column: str, by: np.ndarray | int) -> Run:
    table = run.steps
    rows = table["rank"].to_numpy() == rank
    values = table[column].to_numpy().copy()
    values[rows] += by
    at = table.schema.get_field_index(column)
    return replace(run, steps=table.set_column(at, table.schema.field(at), [values]))


def test_causality_violations_are_reported_and_time_still_adds_up() -> None:
    run = simulate(replace(TWO_HOSTS, ranks=4, ranks_per_host=4)).run
    late = shifted(run, 2, "ready", 45_000_000)
    analysis = analyse(late)
    assert analysis.clocks is not None
    assert analysis.clocks.violations > 0.9
    (finding,) = [f for f in analysis.findings if f.code == "causality_broken"]
    assert finding.evidence.startswith("In 100% of steps")
    ledger = analysis.ledger
    assert ledger is not None
    assert ledger.allreduce.min() >= 0
    entries = sum(ledger.entry(n) for n in ("input", "compute", "other", "imbalance", "allreduce"))
    assert (entries == ledger.total).all()
    assert ledger.total[1:].sum() == ledger.reduced[-1] - ledger.reduced[0]


def test_clocks_that_cannot_be_followed_are_not_used() -> None:
    job = replace(TWO_HOSTS, ranks=4, ranks_per_host=2)
    simulated = simulate(job)
    run = simulated.run
    steps = run.steps["step"].to_numpy()[run.steps["rank"].to_numpy() == 2]
    # A clock that is set in every other step, by more than the allreduce takes.
    wandering = np.where(np.random.default_rng(1).random(len(steps)) < 0.5, 60_000_000, 0)
    for rank in (2, 3):
        for column in ("begin", "data", "ready", "reduced", "end"):
            run = shifted(run, rank, column, wandering)
    aligned = align(run, 0)
    assert aligned.clocks.method == "every step"
    ledger = build_ledger(aligned)
    assert allreduce_error_ms(simulated, ledger) == pytest.approx(0, abs=1.0)
    assert "clocks_unsteady" in [finding.code for finding in analyse(run).findings]


def test_a_clock_that_was_set_once_and_cannot_be_followed_later_on() -> None:
    run = simulate(replace(TWO_HOSTS, ranks=4, ranks_per_host=2)).run
    steps = run.steps["step"].to_numpy()[run.steps["rank"].to_numpy() == 2]
    wandering = np.where(np.random.default_rng(1).random(len(steps)) < 0.5, 60_000_000, 0)
    wandering[: len(steps) // 2] = 0
    at = len(steps) // 4
    wandering[at:] += 3_000_000_000
    for rank in (2, 3):
        for column in ("begin", "data", "ready", "reduced", "end"):
            run = shifted(run, rank, column, wandering)
    aligned = align(run, 0)
    assert aligned.clocks.method == "every step"
    assert any(jump.at == at for jump in aligned.clocks.jumps)
    measured = aligned.cells.whole("measured")
    # In that step the stages of the ranks on this clock contain the jump.
    assert measured[at].tolist() == [True, True, False, False]
    assert "clock_jumped" in [finding.code for finding in analyse(run).findings]


def in_other_order(run: Run) -> Run:
    """Return the run with the second half of its ranks, and so their clocks, first."""
    half = len(run.logs) // 2
    place = np.array([*range(half, 2 * half), *range(half)], np.int32)
    logs = [replace(log, rank=int(place[log.rank])) for log in run.logs]

    def moved(table: pa.Table) -> pa.Table:
        for name in ("log", "rank"):
            column = pa.array(place[table[name].to_numpy()])
            table = table.set_column(table.schema.get_field_index(name), name, column)
        return table.sort_by([("rank", "ascending"), ("step", "ascending")])

    logs.sort(key=lambda log: log.rank)
    steps, intervals = moved(run.steps), moved(run.intervals)
    return replace(run, logs=tuple(logs), steps=steps, intervals=intervals)


@pytest.mark.broad
@pytest.mark.parametrize("ms", [-1_000, -5_000, -3_600_000, 5_000, 36_000_000])
@pytest.mark.parametrize(
    ("per_host", "hosts", "reference_first"),
    [(2, (1,), True), (2, (1,), False), (1, (1, 2), True), (1, (2, 3), False)],
)
def test_a_clock_that_is_set_changes_no_result(
    ms: float, per_host: int, hosts: tuple[int, ...], reference_first: bool
) -> None:
    fault = Fault("compute", 60, ranks=(2,))
    job = Job(ranks=4, ranks_per_host=per_host, steps=400, faults=(fault,))

    def analysed(steps: Sequence[int]) -> Analysis:
        jumps = [Jump(host, step, ms) for host in hosts for step in steps]
        run = simulate(replace(job, clocks=Clocks(jumps=jumps))).run
        return analyse(run if reference_first else in_other_order(run))

    steady = analysed([])
    for step in (1, 5, 150, 398):
        analysis = analysed([step])
        assert analysis.bottleneck.kind == steady.bottleneck.kind == "imbalance"
        assert analysis.bottleneck.ranks == steady.bottleneck.ranks
        assert analysis.steady is not None
        assert len(analysis.steady) >= 396
        assert analysis.step is not None
        assert steady.step is not None
        assert analysis.step.mean == pytest.approx(steady.step.mean, rel=0.003)
        assert analysis.job.total == pytest.approx(steady.job.total, abs=0.5)
        assert analysis.job.steps == pytest.approx(steady.job.steps, abs=1.0)
        codes = {finding.code for finding in analysis.findings}
        assert codes - {"clock_jumped"} == {finding.code for finding in steady.findings}


def test_a_jump_is_written_in_a_readable_unit() -> None:
    clocks = analyse(simulate(Job(ranks=2, steps=60)).run).clocks
    assert clocks is not None
    (finding,) = clock_findings(replace(clocks, jumps=(("host-1", 1500, -3_600_000.1),)))
    assert "host-1 by −60.0 min at step 1,500." in finding.evidence

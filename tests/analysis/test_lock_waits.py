"""Waits for Python's lock, seen at random moments, cost what the job gains without them."""

from __future__ import annotations

import functools
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from simulator import Job, simulate
from simulator.clocks import Clocks
from simulator.faults import Bursts, Fault

from stallscope.analysis import Analysis, analyse
from stallscope.analysis.findings.step_causes import StepCause
from stallscope.analysis.views.one_step import LockWaitsOfRank, find_step, lock_waits_of_step
from stallscope.conditions.condition import parse
from stallscope.run import Run

JOB = Job(ranks=4, steps=1000, compute_ms=50.0, input_ms=2.0, other_ms=2.0)
NOTED = {"interruptions": ["garbage_collection", "interpreter"]}
THREADS = [{"name": "feeder", "file": "/job/feed.py", "line": 7, "function": "fill", "waits": 9}]
FACTS = {**NOTED, "interpreter": {"looks": 900, "waits": 9, "threads": THREADS}}


def waits_of(ms: float, **changes: object) -> Fault:
    fault = Fault("compute", ms, ranks=[1], cv=0.5, cause="interpreter")
    return replace(fault, **changes)  # type: ignore[arg-type]


def run_of(*faults: Fault, **changes: object) -> Run:
    return simulate(replace(JOB, faults=faults, facts=FACTS, **changes)).run  # type: ignore[arg-type]


@functools.cache
def healthy_ms() -> float:
    return step_ms(analyse(run_of()))


def step_ms(analysis: Analysis) -> float:
    assert analysis.step is not None
    return analysis.step.mean


def causes_of(analysis: Analysis) -> dict[str, StepCause]:
    return {cause.code: cause for cause in analysis.step_causes.causes}


@pytest.mark.parametrize("share", [0.05, 0.1, 0.3])
@pytest.mark.parametrize("ranks", [[1], [0, 1, 2, 3]], ids=["one-rank", "all-ranks"])
def test_waits_cost_what_the_job_gains_without_them(share: float, ranks: list[int]) -> None:
    faulty = analyse(run_of(waits_of(share / (1 - share) * healthy_ms(), ranks=ranks)))
    cause = causes_of(faulty)["interpreter"]
    gained = step_ms(faulty) - healthy_ms()
    assert cause.ranks == tuple(ranks)
    assert cause.stage == "compute"
    assert abs(cause.saved_ms.value - gained) < 0.03 * step_ms(faulty)
    assert cause.saved_ms.ci95 is not None
    assert cause.saved_ms.ci95[0] < gained < cause.saved_ms.ci95[1]


def test_bursts_of_waits_are_found_where_they_are() -> None:
    bursts = waits_of(100.0, when=Bursts(100, 10))
    faulty = analyse(run_of(bursts))
    gained = step_ms(faulty) - healthy_ms()
    saved = causes_of(faulty)["interpreter"].saved_ms
    assert saved.value == pytest.approx(gained, rel=0.15)


def test_waits_of_a_rank_that_waits_anyway_cost_nothing() -> None:
    slow = Fault("compute", 60.0, ranks=[0], cv=0.0)
    assert "interpreter" not in causes_of(analyse(run_of(slow, waits_of(10.0))))


def test_the_thread_and_its_line_are_named() -> None:
    text = causes_of(analyse(run_of(waits_of(15.0))))["interpreter"].text
    assert "feeder in fill (feed.py:7)" in text
    assert "rank 1" in text


def test_clocks_that_differ_change_nothing() -> None:
    clocks = Clocks(offsets_ms=(0.0, 900.0, -400.0, 5.0))
    saved_ms = [
        causes_of(analyse(run))["interpreter"].saved_ms.value
        for run in (run_of(waits_of(15.0), ranks_per_host=1, clocks=clocks), run_of(waits_of(15.0)))
    ]
    assert saved_ms[0] == pytest.approx(saved_ms[1], rel=0.02)


def test_collections_that_hold_the_lock_count_once() -> None:
    run = run_of(waits_of(15.0))
    waits = run.intervals.filter(pc.equal(run.intervals["kind"], "interpreter"))
    kind = waits.schema.get_field_index("kind")
    collections = waits.set_column(
        kind, waits.schema.field(kind), [["garbage_collection"] * waits.num_rows]
    )
    together = replace(run, intervals=pa.concat_tables([run.intervals, collections]))
    assert "interpreter" not in causes_of(analyse(together))


@pytest.mark.parametrize("seed", range(1, 11))
def test_clean_and_merely_slow_runs_wait_for_no_thread(seed: int) -> None:
    """A few waits, which any thread causes now and then, are too few to name a cause."""
    slow = Fault("compute", 10.0, ranks=[1])
    now_and_then = waits_of(0.2, ranks=[])
    analysis = analyse(run_of(slow, now_and_then, seed=seed))
    assert "interpreter" not in causes_of(analysis)


def test_a_condition_needs_a_recorder_that_looks() -> None:
    analysis = analyse(run_of(waits_of(15.0)))
    assert parse("causes.interpreter.share>10%").check(analysis).held
    unknown = parse("causes.interpreter.share<1%").check(analyse(simulate(JOB).run))
    assert unknown.held is None


# -- in one step ---------------------------------------------------------------------------------


def waits_in(run: Run, number: int) -> tuple[LockWaitsOfRank, ...]:
    step = find_step(analyse(run), number)
    assert step is not None
    return lock_waits_of_step(run, step)


@pytest.mark.broad
@pytest.mark.parametrize("offset_ms", [0.0, 900.0])
def test_a_step_tells_how_long_its_ranks_waited(offset_ms: float) -> None:
    clocks = Clocks(offsets_ms=(0.0, offset_ms, 0.0, 0.0))
    result = simulate(
        replace(JOB, faults=(waits_of(30.0),), facts=FACTS, ranks_per_host=1, clocks=clocks)
    )
    analysis, truth = analyse(result.run), result.truth.extra["compute"][:, 1] / 1e6
    waits, covered, looks = [], 0, 0
    for number in range(100, 400):
        step = find_step(analysis, number)
        assert step is not None
        for wait in lock_waits_of_step(result.run, step):
            assert wait.rank == 1
            assert wait.ci95 is not None
            assert wait.ci95[0] <= wait.ms <= wait.ci95[1]
            covered += wait.ci95[0] <= truth[number] <= wait.ci95[1]
            looks += wait.looks
            waits.append(wait.ms)
    assert sum(waits) == pytest.approx(truth[100:400].sum(), rel=0.05)
    assert covered >= 0.95 * len(waits)
    assert looks > len(waits)


def test_a_look_that_stands_for_more_than_the_step_does_not_tell_how_long() -> None:
    run = run_of(waits_of(30.0))
    rows = run.intervals.filter(pc.equal(run.intervals["kind"], "interpreter"))
    for name, values in (
        ("end", pc.add(rows["begin"], 10**9)),
        ("steps", pa.array([1] * rows.num_rows)),
    ):
        field = rows.schema.field(name)
        rows = rows.set_column(rows.schema.get_field_index(name), field, values.cast(field.type))
    (wait,) = waits_in(replace(run, intervals=rows), 100)
    assert (wait.rank, wait.looks, wait.ci95) == (1, 1, None)


def test_a_collection_in_a_step_is_no_wait_for_the_lock() -> None:
    run = run_of(waits_of(30.0))
    (wait,) = waits_in(run, 100)
    interrupted = run.intervals
    of_lock = interrupted.filter(pc.equal(interrupted["kind"], "interpreter"))
    at = of_lock.schema.get_field_index("kind")
    collections = of_lock.set_column(
        at, of_lock.schema.field(at), [["garbage_collection"] * of_lock.num_rows]
    )
    together = replace(run, intervals=pa.concat_tables([interrupted, collections]))
    assert wait.looks > 0
    assert waits_in(together, 100) == ()

"""Saves within steps, and saves and evaluations beside them, cost what the job gains without them."""

from __future__ import annotations

import functools
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from simulator import Job, simulate
from simulator.clocks import Clocks
from simulator.faults import Between, Bursts, EveryNth, Fault

from stallscope.analysis import Analysis, analyse
from stallscope.analysis.findings.step_causes import StepCause
from stallscope.run import Run

JOB = Job(ranks=4, steps=1000, compute_ms=50.0, input_ms=2.0, other_ms=2.0)
NOTED = {
    "interruptions": ["garbage_collection", "saving", "background_saving", "background_evaluation"]
}


def beside(ms: float, **changes: object) -> Fault:
    """Slow the steps beside saves of about ten steps, one in about sixty steps."""
    fault = Fault("compute", ms, ranks=[0], when=Bursts(60, 10), cause="background_saving")
    return replace(fault, **changes)  # type: ignore[arg-type]


def run_of(*faults: Fault, **changes: object) -> Run:
    return simulate(replace(JOB, faults=faults, facts=NOTED, **changes)).run  # type: ignore[arg-type]


@functools.cache
def healthy_ms() -> float:
    return step_ms(analyse(run_of()))


def step_ms(analysis: Analysis) -> float:
    assert analysis.step is not None
    return analysis.step.mean


def causes_of(analysis: Analysis) -> dict[str, StepCause]:
    return {cause.code: cause for cause in analysis.step_causes.causes}


@pytest.mark.parametrize("share", [0.05, 0.1, 0.3])
@pytest.mark.parametrize("ranks", [[0], [0, 1, 2, 3]], ids=["one-rank", "all-ranks"])
def test_steps_beside_saves_cost_what_the_job_gains_without_them(
    share: float, ranks: list[int]
) -> None:
    # Saves of one rank cover a sixth of the steps.
    faulty = analyse(run_of(beside(6 * share / (1 - share) * healthy_ms(), ranks=ranks)))
    cause = causes_of(faulty)["background_saving"]
    gained = step_ms(faulty) - healthy_ms()
    assert cause.ranks == tuple(ranks)
    assert cause.stage == "compute"
    assert abs(cause.saved_ms.value - gained) < 0.03 * step_ms(faulty)
    assert cause.saved_ms.ci95 is not None
    assert cause.saved_ms.ci95[0] < gained < cause.saved_ms.ci95[1]


def test_the_sentence_has_the_difference_and_its_part() -> None:
    text = causes_of(analyse(run_of(beside(40.0))))["background_saving"].text
    assert "rank 0" in text
    assert "longer than just before and after" in text
    assert "in compute" in text


def test_clocks_that_differ_change_nothing() -> None:
    clocks = Clocks(offsets_ms=(0.0, 900.0, -400.0, 5.0))
    saved_ms = [
        causes_of(analyse(run))["background_saving"].saved_ms.value
        for run in (run_of(beside(40.0), ranks_per_host=1, clocks=clocks), run_of(beside(40.0)))
    ]
    assert saved_ms[0] == pytest.approx(saved_ms[1], rel=0.03)


@pytest.mark.parametrize("seed", range(1, 11))
def test_saves_that_disturb_nothing_are_no_cause(seed: int) -> None:
    """Also while a rank is slow for another reason, now and then."""
    bursts = Fault("compute", 20.0, ranks=[1], when=Bursts(80, 5))
    analysis = analyse(run_of(beside(0.002, cv=0.0), bursts, seed=seed))
    assert "background_saving" not in causes_of(analysis)


def test_one_short_save_is_too_little_to_tell() -> None:
    few = beside(30.0, when=Between(500, 504))
    assert "background_saving" not in causes_of(analyse(run_of(few)))


def test_steps_beside_evaluations_on_other_threads_are_told_from_those_beside_saves() -> None:
    evaluations = beside(30.0, cause="background_evaluation")
    faulty = analyse(run_of(evaluations, beside(20.0, ranks=[1], when=Bursts(70, 8))))
    causes = causes_of(faulty)
    assert set(causes) == {"background_evaluation", "background_saving"}
    cause = causes["background_evaluation"]
    gained = step_ms(faulty) - step_ms(analyse(run_of(beside(20.0, ranks=[1], when=Bursts(70, 8)))))
    assert cause.saved_ms.value == pytest.approx(gained, abs=0.03 * step_ms(faulty))
    assert cause.ranks == (0,)
    assert "evaluations in the background" in cause.text
    assert "device and cores of its own" in str(cause.advice[0])


def test_a_save_of_one_rank_within_steps_costs_all_of_them() -> None:
    saves = Fault("compute", 400.0, ranks=[0], when=EveryNth(50), cause="saving")
    faulty = analyse(run_of(saves))
    cause = causes_of(faulty)["saving"]
    gained = step_ms(faulty) - healthy_ms()
    assert cause.ranks == (0,)
    assert cause.took_ms == pytest.approx(400, rel=0.05)
    assert cause.saved_ms.value == pytest.approx(gained, rel=0.03)
    assert "async_save" in str(cause.advice[0])


def test_saves_that_are_beside_no_step_are_not_counted() -> None:
    run = run_of(beside(40.0))
    cause = causes_of(analyse(run))["background_saving"]
    saves = run.intervals.filter(pc.equal(run.intervals["kind"], "background_saving"))
    rows = saves.set_column(
        saves.schema.get_field_index("rank"),
        saves.schema.field("rank"),
        [pa.array([3] * saves.num_rows, saves.schema.field("rank").type)],
    )
    # On rank 3, before training starts.
    for name in ("begin", "end"):
        earlier = pc.subtract(rows[name], 10**12)
        rows = rows.set_column(rows.schema.get_field_index(name), rows.schema.field(name), earlier)
    outside = replace(run, intervals=pa.concat_tables([run.intervals, rows]))
    assert causes_of(analyse(outside))["background_saving"] == cause

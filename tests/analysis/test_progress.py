"""The progress of a run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow.compute as pc
import pytest
from simulator import Job, simulate

from stallscope.analysis import analyse
from stallscope.analysis.views.log_health import Progress, progress
from stallscope.run import Run

JOB = Job(ranks=2, steps=400, epochs=4, validation_ms=900.0)


def so_far(steps: int, **facts: Any) -> Run:
    """Return a run of 400 steps after so many of them."""
    run = simulate(JOB).run
    logs = tuple(replace(log, facts={**log.facts, **facts}, ended=False) for log in run.logs)
    return replace(
        run,
        logs=logs,
        steps=run.steps.filter(pc.less(run.steps["step"], steps)),
        intervals=run.intervals.filter(pc.less(run.intervals["step"], steps)),
    )


def of(run: Run) -> Progress:
    status = progress(analyse(run))
    assert status is not None
    return status


def test_remaining_steps_take_as_long_as_completed_ones() -> None:
    status = of(so_far(250, epochs=4, batches_per_epoch=100))
    assert (status.last_step, status.epoch, status.done, status.total) == (249, 2, 250, 400)
    analysis = analyse(so_far(250))
    assert analysis.step is not None
    steps = 150 * analysis.step.mean / 1e3
    # Two of the 250 steps came after a validation of 0.9 s.
    assert status.left_s == pytest.approx(steps + 150 * 2 * 0.9 / 250, rel=0.1)


def test_at_the_end_nothing_is_left() -> None:
    status = of(so_far(400, epochs=4, batches_per_epoch=100))
    assert (status.done, status.total, status.left_s) == (400, 400, 0.0)


def test_several_batches_may_be_one_step() -> None:
    status = of(so_far(250, epochs=4, batches_per_epoch=300, backward_passes_per_step=3))
    assert (status.done, status.total) == (250, 400)


def test_steps_before_a_checkpoint_do_not_count() -> None:
    run = simulate(replace(JOB, first_step=1000)).run
    logs = tuple(
        replace(log, facts={**log.facts, "epochs": 4, "batches_per_epoch": 100}) for log in run.logs
    )
    status = of(replace(run, logs=logs))
    assert status.last_step == 1399
    assert (status.done, status.total) == (400, 400)


@pytest.mark.parametrize(
    "facts",
    [{}, {"epochs": 4}, {"batches_per_epoch": 100}, {"epochs": "4", "batches_per_epoch": -1}],
)
def test_without_a_planned_length_the_rest_is_unknown(facts: dict[str, Any]) -> None:
    status = of(so_far(250, **facts))
    assert (status.last_step, status.done, status.total, status.left_s) == (249, None, None, None)


def test_a_rank_that_stopped_is_behind() -> None:
    run = so_far(250)
    steps = run.steps
    stopped = pc.and_(pc.equal(steps["rank"], 1), pc.greater(steps["step"], 199))
    status = of(replace(run, steps=steps.filter(pc.invert(stopped))))
    assert status.behind == ((1, 199),)
    assert of(run).behind == ()
    # A log that is written every ten seconds does not count as stopped.
    rarely = so_far(250, flush_seconds=10.0)
    assert of(replace(rarely, steps=rarely.steps.filter(pc.invert(stopped)))).behind == ()


def test_before_the_first_step_there_is_no_progress() -> None:
    assert progress(analyse(so_far(0))) is None

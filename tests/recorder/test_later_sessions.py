"""Later sessions of a process continue its run, or start another generation of it."""

from __future__ import annotations

from typing import Any

import pytest

from stallscope.collector.recorder.job.world import World
from stallscope.collector.recorder.session import Session
from stallscope.collector.recorder.step_log import run_identity
from stallscope.parsers import read

from .conftest import Opener
from .rows import step_row


def identity_of(session: Session) -> tuple[Any, Any, Any]:
    [run] = read(str(session.path))
    facts = run.logs[0].facts
    return facts["run_id"], facts["generation"], facts["part"]


def test_another_session_continues_the_run(open_session: Opener) -> None:
    first = open_session(0)
    first.step(step_row(0))
    first.close(counted=1)
    second = open_session(1)
    second.close(counted=1)
    run_id, generation, part = identity_of(first)
    assert (generation, part) == (0, 0)
    assert identity_of(second) == (run_id, 0, 1)
    assert second.next_step == 1


def test_repeated_steps_are_another_generation(open_session: Opener) -> None:
    first = open_session(0)
    for number in range(10):
        first.step(step_row(number))
    first.close(counted=10)
    again = open_session(4)
    again.close(counted=4)
    run_id, _, _ = identity_of(first)
    assert identity_of(again) == (run_id, 1, 0)
    assert again.next_step == 4


def test_another_rank_is_another_generation(open_session: Opener) -> None:
    first = open_session(0, world=World(0, 2, 0))
    first.close(counted=0)
    rank_1 = open_session(0, world=World(1, 2, 1))
    rank_1.close(counted=0)
    run_id, _, _ = identity_of(first)
    assert identity_of(rank_1) == (run_id, 1, 0)


@pytest.mark.parametrize(
    ("recorded", "counted", "counted_next", "next_step"),
    [
        (10, 10, 10, 10),
        # Trained without the callback.
        (10, 10, 15, 15),
        # The framework does not count these steps.
        (10, 0, 0, 10),
        # It counted an update for a batch that never came.
        (10, 11, 11, 10),
    ],
)
def test_another_session_continues_the_count_of_steps(
    open_session: Opener, recorded: int, counted: int, counted_next: int, next_step: int
) -> None:
    first = open_session(0)
    for number in range(recorded):
        first.step(step_row(number))
    first.close(counted=counted)
    second = open_session(counted_next)
    second.close()
    assert second.next_step == next_step
    assert identity_of(second)[1] == 0


def test_a_given_run_id_is_the_runs_and_a_later_process_its_next_generation(
    open_session: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STALLSCOPE_RUN_ID", "mine")
    first = open_session()
    first.close()
    # A later process does not know this.
    monkeypatch.setattr(run_identity, "_last_sessions", {})
    later = open_session()
    later.close()
    assert identity_of(first) == ("mine", 0, 0)
    assert identity_of(later) == ("mine", 1, 0)

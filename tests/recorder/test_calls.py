"""Finished calls of the train function keep their epoch, their steps and the cost of recording."""

from __future__ import annotations

import pytest

from stallscope.collector.recorder.guards import Cost
from stallscope.collector.recorder.keras_common import finished_calls
from stallscope.collector.recorder.keras_common.finished_calls import FinishedCalls


def test_the_cost_of_recording_is_counted_once_per_call() -> None:
    cost = Cost()
    ended = FinishedCalls(cost)
    # 2 microseconds before the first call and 3 after it, 1 before the second and 4 after.
    ended.waiting.extend([(0, 2000, 9000, None, None), (20_000, 21_000, 30_000, 12_000, None)])
    ended.recorded_at = 34_000
    for call in ended.take():
        ended.count(call.own_ns)
    ended.close()
    ended.close()
    assert (cost.iterations, cost.host_ns) == (2, 10_000)


def test_dropped_calls_do_not_count_as_work_of_the_recorder() -> None:
    cost = Cost()
    ended = FinishedCalls(cost)
    ended.waiting.extend([(0, 2000, 9000, None, None), (20_000, 21_000, 30_000, 12_000, None)])
    ended.recorded_at = 34_000
    [_] = ended.take(1)
    ended.close()
    assert (cost.iterations, cost.host_ns) == (0, 0)


def test_calls_belong_to_the_epoch_in_which_they_started(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0]
    monkeypatch.setattr(finished_calls, "read_clocks", lambda: (now[0], 0))
    monkeypatch.setattr(finished_calls, "monotonic_ns", lambda: now[0])
    ended = FinishedCalls(Cost())
    for begin, epoch, steps in ((10, 3, 1), (20, 4, 2)):
        now[0] = begin
        ended.change(epoch, steps)
        ended.waiting.append((begin, begin, begin + 5, None, None))
    now[0] = 30
    ended.change(5, steps=7)
    assert ended.steps_waiting == 3
    assert [(call.epoch, call.steps) for call in ended.take(1)] == [(3, 1)]
    assert ended.steps_waiting == 2
    assert [(call.epoch, call.steps) for call in ended.take()] == [(4, 2)]

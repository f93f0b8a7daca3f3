"""Iterations of asynchronous devices become rows once the device has finished them."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace
from typing import Any

import numpy as np

from stallscope.collector.recorder.jax import jax_results as of_jax
from stallscope.collector.recorder.mxnet import gluon_iterations as of_mxnet
from stallscope.collector.recorder.step_log.line_format import StepRow

MS = 1_000_000


class Answer:
    """An answer of MXNet's engine, which comes when its time is set."""

    def __init__(self, ms: float | None = None) -> None:
        self.ms = ms

    @property
    def is_there(self) -> bool:
        return self.ms is not None

    def take(self) -> int:
        assert self.ms is not None
        return int(self.ms * MS)


def mxnet_stream(single: bool = False) -> tuple[of_mxnet.IterationStream, list[StepRow], list[int]]:
    """Return a stream, its rows and the costs of recording."""
    rows: list[StepRow] = []
    costs: list[int] = []
    return of_mxnet.IterationStream(single, costs.append, rows.extend), rows, costs


def mxnet_iteration(begin: int, end: int, *reductions: tuple[Any, Any]) -> Any:
    """Make an iteration of the host from ``begin`` to ``end``; its batch arrives after 1 ms."""
    return [0, begin * MS, (begin + 1) * MS, (8, 3), 500, *reductions], end * MS


def times(row: StepRow) -> list[float | None]:
    moments = (row.begin, row.data, row.ready, row.reduced, row.end)
    return [None if moment is None else moment / MS for moment in moments]


def test_a_step_starts_when_the_engine_has_reduced_the_one_before() -> None:
    stream, rows, costs = mxnet_stream()
    stream.waiting.append(mxnet_iteration(0, 10, (Answer(20), Answer(30))))
    stream.waiting.append(mxnet_iteration(10, 20, (Answer(45), Answer(40))))
    stream.drain()
    # The engine may report an answer late.
    assert [times(row) for row in rows] == [[0, 1, 20, 30, 30], [30, 30, 45, 45, 45]]
    assert costs == [500, 500]
    stream.close()
    assert not stream.gave_up


def test_rows_wait_for_the_engine_in_order() -> None:
    stream, rows, _ = mxnet_stream(single=True)
    late = Answer()
    stream.waiting.append(mxnet_iteration(0, 10, (late, None)))
    stream.waiting.append(mxnet_iteration(10, 20, (Answer(18), None)))
    stream.drain()
    assert rows == []
    late.ms = 12
    stream.drain()
    assert [times(row) for row in rows] == [[0, 1, 12, 12, 12], [12, 12, 18, 18, 20]]


def test_iterations_that_only_accumulate_are_summed() -> None:
    stream, rows, _ = mxnet_stream()
    stream.waiting.append(mxnet_iteration(0, 10))
    stream.waiting.append(mxnet_iteration(10, 20, (Answer(18), Answer(19))))
    stream.drain()
    [row] = rows
    assert (row.micro, row.samples, row.begin, row.reduced) == (2, 16, 0, 19 * MS)
    assert row.elements == 2 * 8 * 3


def test_without_any_reduction_every_iteration_is_a_step() -> None:
    stream, rows, _ = mxnet_stream()
    for begin in (0, 10):
        stream.waiting.append(mxnet_iteration(begin, begin + 10))
    stream.close()
    assert stream.gave_up
    assert [times(row) for row in rows] == [[0, 1, None, None, 10], [10, 11, None, None, 20]]


def test_intervals_wait_for_the_results_before_them() -> None:
    rows: list[StepRow] = []
    intervals: list[of_jax.Interval] = []
    results: Any = SimpleNamespace(done=deque(), settle=lambda: None)
    counted: list[tuple[int, bool, int, int]] = []
    stream = of_jax.IterationStream(
        results,
        True,
        lambda _: None,
        rows.extend,
        intervals.append,
        lambda *counts: counted.append(counts),
    )
    mask = np.array([[1, 1, 0], [1, 0, 0]])
    stream.waiting.append([0, 0, MS, (8, 3), 500, 1, 10 * MS, mask, None, False])
    stream.waiting.append(of_jax.Interval("validation", 0, 11 * MS, 20 * MS))
    stream.waiting.append([0, 20 * MS, 21 * MS, (8, 3), 500, 1, 30 * MS, None, None, False])
    stream.drain()
    assert (rows, intervals) == ([], [])
    assert stream.unfinished() == [0, 0, MS, (8, 3), 500, 1, 10 * MS, mask, None, False]
    results.done.append(15 * MS)
    stream.drain()
    assert [times(row) for row in rows] == [[0, 1, 15, 15, 15]]
    assert [(row.samples, row.elements) for row in rows] == [(8, 24)]
    assert intervals == [of_jax.Interval("validation", 0, 15 * MS, 20 * MS)]
    # Waiting for the last results failed: the end of the iteration counts.
    results.done.append(None)
    stream.close()
    assert times(rows[1]) == [20, 21, 30, 30, 30]
    assert not stream.gave_up
    # Of the first batch what tells its tokens was kept.
    assert counted == [(0, True, 3, 3)]


def ignored(*_: Any) -> None:
    pass


def jax_steps(
    *iterations: tuple[int, int, int | None, bool], done: tuple[int, ...]
) -> tuple[list[list[float | None]], str | None]:
    """Return the times of steps of several processes, and why none of them has its dispatch.

    Args:
        iterations: the begin and the results of each, when it gave them, and whether they were there at
            its end. Its batch arrives after 1 ms, and it ends after 10 ms.
        done: when the thread has seen each of the results.
    """
    rows: list[StepRow] = []
    results: Any = SimpleNamespace(done=deque(ms * MS for ms in done), settle=lambda: None)
    stream = of_jax.IterationStream(results, False, ignored, rows.extend, ignored, ignored)
    for begin, count, dispatched, were_done in iterations:
        known = begin * MS, (begin + 1) * MS, (8, 3), 500, count, (begin + 10) * MS, None
        stream.waiting.append(
            [0, *known, None if dispatched is None else dispatched * MS, were_done]
        )
    stream.close()
    return [times(row) for row in rows], stream.why_unseen


def test_a_step_of_several_processes_is_ready_when_the_host_has_dispatched_it() -> None:
    # The host runs ahead of its device, which has not waited for the second dispatch.
    steps, why = jax_steps(
        (0, 1, 3, False), (10, 1, 13, False), (20, 1, 45, False), done=(30, 40, 60)
    )
    assert steps == [[0, 1, 3, 30, 30], [30, 30, 30, 40, 40], [40, 40, 45, 60, 60]]
    assert why is None


def test_results_end_no_later_than_training_has_seen_them() -> None:
    steps, _ = jax_steps((0, 1, 3, True), (10, 1, 13, True), done=(14, 19))
    assert steps == [[0, 1, 3, 10, 10], [10, 11, 13, 19, 19]]


def test_a_step_whose_dispatch_is_unknown_is_not_taken_apart() -> None:
    steps, why = jax_steps((0, 1, None, True), done=(9,))
    assert steps == [[0, 1, None, None, 9]]
    assert why == of_jax.READ_BEFORE
    several = [
        jax_steps((0, 2, None, False), done=(20, 30)),
        jax_steps((0, 0, None, False), (10, 1, 13, False), done=(30,)),
    ]
    for steps, why in several:
        assert [row[2:4] for row in steps] == [[None, None]]
        assert why == of_jax.SEVERAL

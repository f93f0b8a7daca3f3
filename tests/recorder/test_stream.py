"""Calls and timestamps are matched although the training continues while they are read."""

from __future__ import annotations

import pytest

from stallscope.collector.recorder.guards import Cost
from stallscope.collector.recorder.keras_common import finished_calls
from stallscope.collector.recorder.keras_common.finished_calls import (
    CallAssembler,
    FinishedCalls,
    GraphStep,
)
from stallscope.collector.recorder.step_log.line_format import StepRow, TokensRow
from stallscope.collector.recorder.tf_keras.stream import StepStream

MS = 1_000_000


@pytest.fixture(autouse=True)
def one_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Timestamps of these tests are on the monotonic clock."""
    monkeypatch.setattr(finished_calls, "read_clocks", lambda: (0, 0))


class Ring:
    """A ring that gets new steps while it is read: ``meanwhile`` runs then."""

    def __init__(self) -> None:
        self.begun = 0
        self.read = 0
        self.left = 0
        self.handed_out = False
        self.meanwhile = lambda: None

    def count_waiting(self) -> int:
        self.left = self.begun - self.read
        return self.left

    def take(self, count: int | None = None) -> list[GraphStep]:
        self.meanwhile()
        first = self.read
        self.read = self.begun if count is None else min(self.begun, first + count)
        self.left = self.begun - self.read
        return [
            GraphStep(t + 1 * MS, t + 5 * MS, t + 7 * MS, t + 8 * MS, 32)
            for t in (number * 10 * MS for number in range(first, self.read))
        ]


class Training:
    """A stream, its calls, and the resulting rows."""

    def __init__(self) -> None:
        self.ring = Ring()
        self.calls = FinishedCalls(Cost())
        self.rows: list[StepRow] = []
        self.counted: list[TokensRow] = []
        self.stream = StepStream(
            self.calls,
            self.ring,  # type: ignore[arg-type]
            CallAssembler(0, 1, True),
            False,
            self.rows.extend,
            self.counted.append,
        )

    def call_ends(self, number: int) -> None:
        self.ring.begun = max(self.ring.begun, number + 1)
        begin = number * 10 * MS
        self.calls.waiting.append((begin, begin, begin + 9 * MS, None, None))
        self.stream.check()


def test_calls_that_end_while_the_ring_is_read_keep_their_timestamps() -> None:
    training = Training()
    ring, stream, rows = training.ring, training.stream, training.rows
    training.call_ends(0)
    stream.settle(0, 1, 1, lambda step: None)

    def meanwhile() -> None:
        # The flushing thread was suspended: two calls ended and a third one runs.
        ring.meanwhile = lambda: None
        training.call_ends(1)
        training.call_ends(2)
        ring.begun += 1

    ring.meanwhile = meanwhile
    stream.drain()
    training.call_ends(3)
    stream.drain(between_calls=True)
    assert stream.trouble is None
    assert [row.step for row in rows] == [0, 1, 2, 3]
    assert all(row.ready is not None for row in rows)


def test_a_train_function_that_runs_train_step_twice_is_found() -> None:
    training = Training()
    ring, stream, rows = training.ring, training.stream, training.rows
    training.call_ends(0)
    stream.settle(0, 1, 1, lambda step: None)
    for _ in range(4):
        ring.begun += 1
        training.call_ends(ring.begun)
    stream.drain(between_calls=True)
    assert stream.trouble is not None
    assert [row.ready for row in rows] == [None] * 5

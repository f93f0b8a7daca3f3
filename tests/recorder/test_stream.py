"""Calls and stamps are told apart although the training goes on while they are read."""

from __future__ import annotations

from stallscope.collector.recorder.format import StepRow
from stallscope.collector.recorder.tf_keras.steps import Call, GraphStep, StepAssembler
from stallscope.collector.recorder.tf_keras.stream import StepStream

MS = 1_000_000


def call(number: int) -> Call:
    begin = number * 10 * MS
    return Call(0, begin, begin + 9 * MS, 0, 0, 1)


class Ring:
    """A ring whose graph begins steps while it is read: ``meanwhile`` runs then."""

    def __init__(self) -> None:
        self.begun = 0
        self.read = 0
        self.left = 0
        self.meanwhile = lambda: None

    def look(self) -> int:
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


def stream_of(ring: Ring) -> tuple[StepStream, list[StepRow]]:
    rows: list[StepRow] = []
    assembler = StepAssembler(0, 1, True)
    stream = StepStream(ring, assembler, False, rows.extend)  # type: ignore[arg-type]
    return stream, rows


def end(stream: StepStream, ring: Ring, number: int) -> None:
    ring.begun = max(ring.begun, number + 1)
    stream.add(call(number))


def test_calls_that_end_while_the_ring_is_read_cost_no_stamps() -> None:
    ring = Ring()
    stream, rows = stream_of(ring)
    end(stream, ring, 0)
    stream.settle(0, 1, 1, lambda step: None)

    def meanwhile() -> None:
        # The flushing thread was put aside: two calls ended and a third one runs.
        ring.meanwhile = lambda: None
        end(stream, ring, 1)
        end(stream, ring, 2)
        ring.begun += 1

    ring.meanwhile = meanwhile
    stream.drain()
    stream.add(call(3))
    stream.drain(between_calls=True)
    assert stream.trouble is None
    assert [row.step for row in rows] == [0, 1, 2, 3]
    assert all(row.ready is not None for row in rows)


def test_a_train_function_that_runs_train_step_twice_is_found() -> None:
    ring = Ring()
    stream, rows = stream_of(ring)
    end(stream, ring, 0)
    stream.settle(0, 1, 1, lambda step: None)
    for _ in range(4):
        ring.begun += 1
        end(stream, ring, ring.begun)
    stream.drain(between_calls=True)
    assert stream.trouble is not None
    assert [row.ready for row in rows] == [None] * 5

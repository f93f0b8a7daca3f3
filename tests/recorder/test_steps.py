"""Calls of the train function and timestamps of its graph become rows of steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stallscope.collector.recorder.guards import JUMP_NS, Cost
from stallscope.collector.recorder.keras_common import finished_calls
from stallscope.collector.recorder.keras_common.finished_calls import (
    LOST,
    MOST_WAITING,
    Call,
    CallAssembler,
    FinishedCalls,
    GraphStep,
    graph_step,
)
from stallscope.collector.recorder.step_log.line_format import StepRow, TokensRow
from stallscope.collector.recorder.tf_keras.stream import StepStream

CLOCK = 1_700_000_000_000_000_000
MS = 1_000_000


@pytest.fixture(autouse=True)
def wall(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The monotonic clock, and the wall clock's offset, which only these tests change."""
    clocks = [0, CLOCK]
    monkeypatch.setattr(finished_calls, "read_clocks", lambda: (clocks[0], clocks[1]))
    monkeypatch.setattr(finished_calls, "monotonic_ns", lambda: clocks[0])
    return clocks


def call(begin: float, end: float | None, steps: int = 1, jump: int = 0) -> Call:
    """Make a call between two times in milliseconds."""
    ended = None if end is None else int(end * MS)
    return Call(0, int(begin * MS), ended, CLOCK, CLOCK + jump, steps)


def timestamps(*moments: float | None, samples: int | None = 8) -> GraphStep:
    """Data, ready, reduced and done, in milliseconds of the monotonic clock."""
    wall = [None if moment is None else CLOCK + int(moment * MS) for moment in moments]
    data, ready, reduced, done = [*wall, None, None, None, None][:4]
    return GraphStep(data, ready, reduced, done, samples)


def assembler(**options: Any) -> CallAssembler:
    defaults = {"next_step": 0, "passes_per_step": 1, "reduces": True}
    return CallAssembler(**{**defaults, **options})


def times(row: StepRow) -> list[float | None]:
    moments = (row.begin, row.data, row.ready, row.reduced, row.end)
    return [None if moment is None else moment / MS for moment in moments]


def test_timestamps_of_the_graph_are_put_on_the_hosts_clock() -> None:
    [row] = assembler(next_step=3).graph_rows(call(0, 10), [timestamps(1, 4, 9)])
    assert times(row) == [0, 1, 4, 9, 10]
    assert (row.step, row.micro, row.samples, row.clock) == (3, 1, 8, CLOCK)


def test_a_timestamp_that_was_not_written_is_none() -> None:
    [row] = assembler().graph_rows(call(0, 10), [timestamps(1, None, None)])
    assert times(row) == [0, 1, None, None, 10]


@pytest.mark.parametrize("late", [10.2, 500, -0.2])
def test_a_timestamp_outside_of_its_step_is_none(late: float) -> None:
    [row] = assembler().graph_rows(call(0, 10), [timestamps(1, late, 9)])
    assert times(row) == [0, 1, None, 9, 10]


def test_ready_after_reduced_is_set_to_reduced() -> None:
    [row] = assembler().graph_rows(call(0, 10), [timestamps(1, 9, 6)])
    assert times(row) == [0, 1, 6, 6, 10]


def test_gradients_reduced_before_the_data_have_no_timestamps() -> None:
    [row] = assembler().graph_rows(call(0, 10), [timestamps(5, 7, 3)])
    assert times(row) == [0, 5, 7, None, 10]


def test_a_timestamp_outside_by_its_resolution_is_at_the_edge() -> None:
    [row] = assembler().graph_rows(call(0, 10), [timestamps(-0.05, 4, 10.05)])
    assert times(row) == [0, 0, 4, 10, 10]


def test_a_wall_clock_that_jumps_in_a_step_makes_its_stages_none() -> None:
    jumped = call(0, 10, jump=JUMP_NS + 1)
    [row] = assembler().graph_rows(jumped, [timestamps(1, 4, 9)])
    assert times(row) == [0, None, None, None, 10]
    assert row.samples == 8


def test_one_process_has_reduced_what_is_ready() -> None:
    [row] = assembler(reduces=False).graph_rows(call(0, 10), [timestamps(1, 4, 9)])
    assert times(row) == [0, 1, 4, 4, 10]


def test_steps_inside_a_call_follow_one_another() -> None:
    inside = [timestamps(1, 2, 3, 4), timestamps(5, 6, 7, 8), timestamps(8.5, 9, 9.5, 9.8)]
    rows = assembler().graph_rows(call(0, 10, steps=3), inside)
    assert [row.step for row in rows] == [0, 1, 2]
    assert [times(row) for row in rows] == [
        [0, 1, 2, 3, 4],
        [4, 5, 6, 7, 8],
        [8, 8.5, 9, 9.5, 10],
    ]


def test_a_clock_that_jumps_inside_a_call_of_several_leaves_one_row_and_the_right_numbers() -> None:
    joined = assembler()
    inside = [timestamps(1, 2, 3, 4), timestamps(5, 6, 7, 8)]
    [row] = joined.graph_rows(call(0, 10, steps=2, jump=JUMP_NS + 1), inside)
    assert times(row) == [0, None, None, None, 10]
    assert (row.step, row.micro) == (1, 2)
    assert joined.next_step == 2


def test_steps_that_ended_before_the_data_did_are_rows() -> None:
    aborted = call(0, None, steps=4)
    inside = [timestamps(1, 2, 3, 4), timestamps(5, 6, 7, 8), timestamps(9, None, None, None)]
    rows = assembler().graph_rows(aborted, inside)
    assert [times(row) for row in rows] == [[0, 1, 2, 3, 4], [4, 5, 6, 7, 8]]


def test_steps_that_were_overwritten_unread_keep_their_numbers() -> None:
    inside = [LOST, LOST, timestamps(5, 6, 7, 8), timestamps(8.5, 9, 9.5, 9.8)]
    rows = assembler().graph_rows(call(0, 10, steps=4), inside)
    assert [row.step for row in rows] == [2, 3]


def test_passes_without_a_reduction_are_summed_into_the_step() -> None:
    summing = assembler(passes_per_step=2)
    assert summing.graph_rows(call(0, 5), [timestamps(1, None, None)]) == []
    [row] = summing.graph_rows(call(10, 20), [timestamps(12, 15, 18)])
    # Both inputs, 1 and 2 ms, belong to the step.
    assert times(row) == [0, 3, 15, 18, 20]
    assert (row.step, row.micro, row.samples) == (0, 2, 16)


def test_a_pass_without_input_time_leaves_the_step_without_it() -> None:
    summing = assembler(passes_per_step=2)
    summing.graph_rows(call(0, 5), [timestamps(None, None, None, samples=None)])
    [row] = summing.graph_rows(call(10, 20), [timestamps(12, 15, 18)])
    assert times(row) == [0, None, 15, 18, 20]
    assert row.samples is None


def test_earlier_passes_count_for_the_first_step() -> None:
    summing = assembler(passes_per_step=3, iterations_done=2)
    [first] = summing.graph_rows(call(0, 5), [timestamps(1, 2, 3)])
    assert first.micro == 1
    assert summing.graph_rows(call(10, 15), [timestamps(11, None, None)]) == []


def test_without_timestamps_a_call_is_one_row_with_its_number_of_steps() -> None:
    [row] = assembler().host_rows([call(0, 10, steps=5), call(10, None)])
    assert times(row) == [0, None, None, None, 10]
    assert (row.micro, row.samples) == (5, None)


class FakeRing:
    """Replaces the variable that the graph writes."""

    def __init__(self) -> None:
        self.steps: list[GraphStep] = []
        self.left = 0
        self.handed_out = False

    def count_waiting(self) -> int:
        return len(self.steps)

    def take(self, count: int | None = None) -> list[GraphStep]:
        end = len(self.steps) if count is None else count
        taken, self.steps = self.steps[:end], self.steps[end:]
        self.left = len(self.steps)
        return taken


class Stream:
    """A stream, its ring and the resulting rows."""

    def __init__(self, several_per_call: bool = False, **options: Any) -> None:
        self.ring = FakeRing()
        self.rows: list[StepRow] = []
        self.counted: list[TokensRow] = []
        self.assembler = assembler(**options)
        self.calls = FinishedCalls(Cost())
        self.stream = StepStream(
            self.calls,
            self.ring,  # type: ignore[arg-type]
            self.assembler,
            several_per_call,
            self.rows.extend,
            self.counted.append,
        )

    def run(self, begin: float, *, in_graph: int = 1) -> None:
        """Run one call of 10 ms with ``in_graph`` steps."""
        self.ring.steps += [timestamps(begin + 1, begin + 4, begin + 9, begin + 9.5)] * in_graph
        entered = int(begin * MS)
        self.calls.change(0, max(1, in_graph))
        self.calls.waiting.append((entered, entered, int((begin + 10) * MS), None, None))
        self.stream.check()

    def settle(self, before: int, now: int, passes: int = 1) -> list[int]:
        renumbered: list[int] = []
        self.stream.settle(before, now, passes, renumbered.append)
        return renumbered

    @property
    def numbers(self) -> list[int]:
        return [row.step for row in self.rows]


def test_no_row_is_written_before_the_number_of_the_first_step_is_known() -> None:
    a = Stream()
    a.run(0)
    a.stream.drain()
    assert a.rows == []
    assert a.settle(0, 1) == []
    a.stream.drain()
    assert a.numbers == [0]


@pytest.mark.parametrize(
    ("before", "now", "renumbered"),
    [
        (0, 1, []),
        # A skipped update.
        (7, 7, []),
        # Rank 0's checkpoint came with the broadcast, after the first batch.
        (0, 1001, [1000]),
        (500, 101, [100]),
    ],
)
def test_the_first_step_is_numbered_by_what_all_ranks_count(
    before: int, now: int, renumbered: list[int]
) -> None:
    a = Stream(next_step=before)
    a.run(0)
    assert a.settle(before, now) == renumbered
    a.stream.drain()
    assert a.numbers == (renumbered or [before])
    # The number is decided once.
    assert a.settle(0, 5000) == []


def test_accumulated_passes_are_renumbered_as_steps() -> None:
    a = Stream(passes_per_step=2)
    a.run(0)
    assert a.settle(0, 2001, passes=2) == [1000]


def test_many_calls_are_read_before_the_ring_overflows() -> None:
    a = Stream()
    a.run(0)
    a.settle(0, 1)
    for number in range(1, MOST_WAITING):
        a.run(10 * number)
    assert a.numbers == list(range(MOST_WAITING))


def test_a_step_that_is_running_is_left_for_later() -> None:
    a = Stream()
    a.run(0)
    a.settle(0, 1)
    a.ring.steps.append(timestamps(11, None, None))
    a.stream.drain()
    assert a.numbers == [0]
    assert a.stream.trouble is None


def test_a_step_that_the_end_of_data_stopped_leaves_no_row() -> None:
    a = Stream()
    a.run(0)
    a.ring.steps.append(timestamps(11, None, None))
    a.stream.abort(10 * MS)
    a.run(20)
    a.stream.drain()
    assert [times(row)[0] for row in a.rows] == [0, 20]
    assert [row.data for row in a.rows] == [1 * MS, 21 * MS]


def test_calls_of_several_steps_are_rows_at_once() -> None:
    a = Stream(several_per_call=True)
    a.run(0, in_graph=3)
    a.settle(0, 3)
    a.stream.drain()
    a.run(10, in_graph=2)
    assert a.numbers == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("ran", [0, 2])
def test_a_train_function_of_another_kind_is_noticed_at_its_first_call(ran: int) -> None:
    a = Stream()
    a.run(0, in_graph=ran)
    assert a.stream.trouble == f"the first call of the train function ran train_step {ran} times"
    assert not a.stream.has_timestamps
    assert a.settle(0, ran) == []
    a.stream.drain()
    [row] = a.rows
    assert times(row) == [0, None, None, None, 10]


@pytest.mark.parametrize("ran", [0, 2])
def test_a_train_function_that_changes_later_is_noticed(ran: int) -> None:
    a = Stream()
    a.run(0)
    a.settle(0, 1)
    a.run(10, in_graph=ran)
    a.stream.drain(between_calls=True)
    assert a.stream.trouble is not None
    assert a.numbers == [0, 1]
    assert all(row.data is None for row in a.rows)
    a.run(20)
    a.stream.drain()
    assert a.numbers == [0, 1, 2]


def test_stages_are_left_out_if_the_wall_clock_was_set_since_its_last_reading(
    wall: list[int],
) -> None:
    a = Stream()
    a.run(0)
    a.settle(0, 1)
    a.stream.drain()
    a.run(10)
    wall[:] = [25 * MS, CLOCK + JUMP_NS + 1]
    a.stream.drain()
    # The call that ran meanwhile may have started with the old clock; the next one has not.
    a.run(20)
    later = [wall[1] + at * MS for at in (31, 34, 39)]
    a.ring.steps.append(GraphStep(*later, None, 8))
    a.calls.waiting.append((30 * MS, 30 * MS, 40 * MS, None, None))
    a.stream.drain()
    assert [times(row)[1:4] for row in a.rows] == [[1, 4, 9], [None] * 3, [None] * 3, [31, 34, 39]]
    assert [times(row)[0] for row in a.rows] == [0, 10, 20, 30]


def test_the_flushing_thread_may_get_the_first_call_before_it_is_checked() -> None:
    a = Stream()
    a.settle(0, 0)
    a.ring.steps.append(timestamps(1, 4, 9))
    a.calls.waiting.append((0, 0, 10 * MS, None, None))
    a.stream.drain()
    a.stream.check()
    a.run(10)
    a.stream.drain()
    assert a.stream.trouble is None
    assert [times(row)[1] for row in a.rows] == [1, 11]


class Tensor:
    """A graph's output: data, samples, elements of each, tokens, places, ready, reduced and done."""

    def __init__(self, *row: float) -> None:
        self._row = np.array(row)

    def numpy(self) -> np.ndarray:
        return self._row


def test_returned_timestamps_belong_to_the_call_that_returned_them() -> None:
    a = Stream()
    a.ring.handed_out = True
    a.settle(0, 0)
    for begin in (0, 10, 20):
        data, ready, reduced = (CLOCK / 1e9 + (begin + at) / 1e3 for at in (1, 4, 9))
        # The second call returned no timestamps: a branch of the graph has written them.
        seen = None if begin == 10 else Tensor(data, 8, 3, 20, 24, ready, reduced, 0)
        a.calls.waiting.append((begin * MS, begin * MS, (begin + 10) * MS, None, seen))
    a.ring.steps.append(timestamps(12, 15, 19))
    a.stream.check()
    a.stream.drain(between_calls=True)
    assert a.stream.trouble is None
    moments = [[round(at) for at in times(row) if at is not None] for row in a.rows]
    assert moments == [[0, 1, 4, 9, 10], [10, 12, 15, 19, 20], [20, 21, 24, 29, 30]]
    assert [row.samples for row in a.rows] == [8, 8, 8]
    assert [row.elements for row in a.rows] == [24, None, 24]
    # The tokens of one in eight steps.
    assert a.counted == [TokensRow(0, 0, 20, 4)]


def test_old_values_of_an_earlier_step_are_not_timestamps() -> None:
    assert graph_step((2.0, -1, -1, -1, -1, 3.0, 1.0, 0)) == GraphStep(
        2_000_000_000, 3_000_000_000, None, None, None
    )


@pytest.mark.parametrize(
    ("samples", "each", "elements"), [(8, 0.375, 3), (8, 12, 96), (8, -1, None), (-1, 12, None)]
)
def test_the_elements_of_a_step_are_those_of_its_samples(
    samples: int, each: float, elements: int | None
) -> None:
    assert graph_step((2.0, samples, each, -1, -1, 3.0, 4.0, 0)).elements == elements

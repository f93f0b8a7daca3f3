"""Timestamps of a CUDA device, on the host's clock and without waiting for the device.

The device is simulated, see ``training.fake_cuda``; ``benchmarks/gpu_check.py`` checks a real one.
"""

from __future__ import annotations

from copy import copy
from typing import Any

import pytest
from training.fake_cuda import NEVER, FakeCuda, HostClock

from stallscope.collector.recorder.loop_steps import Iteration, Reduction, StepAssembler
from stallscope.collector.recorder.pytorch.cuda import CudaClock, CudaTimestamp
from stallscope.collector.recorder.pytorch.device_steps import DeviceIteration, DeviceSteps
from stallscope.collector.recorder.step_log.line_format import StepRow

MS = 1_000_000
SECOND = 1000 * MS
MOST_WAITING = 4096


class Training:
    """A loop on a simulated device: its host, its iterations, and the resulting rows."""

    def __init__(
        self,
        counts: bool = True,
        single: bool = False,
        drift: float = 0.0,
        read_beside: bool = False,
    ) -> None:
        self.host = HostClock()
        self.cuda = FakeCuda(self.host, drift)
        exchange = self.cuda.exchange_mode if read_beside else None
        self.clock = CudaClock(self.cuda, 0, self.host, exchange_mode=exchange)
        self.rows: list[StepRow] = []
        self.assembler = StepAssembler(counts, single)
        self.late = DeviceSteps(
            self.clock, StepAssembler(counts, single), self.rows.append, self.host, self.host.sleep
        )
        self.steps = 0

    def iteration(
        self,
        fetch_ms: float = 0,
        compute_ms: float = 2,
        reduce_ms: float = 1,
        reductions: int = 1,
        gather_ms: float = 0,
    ) -> None:
        """Let the host wait for the batch, and the device do the rest."""
        iteration = Iteration(0, self.host(), 7)
        iteration.device_begin = self.clock.timestamp()
        self.host.ns += int(fetch_ms * MS)
        iteration.data, iteration.samples = self.host(), 16
        iteration.device_data = self.clock.timestamp()
        for _ in range(reductions):
            waits = (self.gather(gather_ms),) if gather_ms else ()
            self.cuda.work(int(compute_ms * MS))
            ready, device_ready = self.host(), self.clock.timestamp()
            self.cuda.work(int(reduce_ms * MS))
            reduced = self.clock.timestamp()
            iteration.reduced(
                Reduction(ready, ready, self.host(), device_ready, reduced, device_waits=waits)
            )
        end = self.host()
        times = (iteration.device_begin, iteration.device_data, None, self.clock.timestamp(), False)
        ended = DeviceIteration(copy(iteration), end, times)
        self.late.read_some(end)
        rows = self.assembler.rows(iteration, end)
        numbered = [row._replace(step=self.steps + at) for at, row in enumerate(rows)]
        self.steps += len(rows)
        self.late.add(ended, numbered)

    def settle(self, last: bool = False) -> None:
        """Read the finished timestamps, and make rows of them."""
        self.late.read(last=last)
        self.late.settle()

    def gather(self, milliseconds: float) -> tuple[Any, Any]:
        """Let the device wait for other ranks; return the timestamps around it."""
        before = self.clock.timestamp()
        self.cuda.work(int(milliseconds * MS))
        return before, self.clock.timestamp()

    def stages_ms(self) -> list[list[float | None]]:
        """Return the times of input, compute and reduction in every row."""
        return [
            [_ms(row.begin, row.data), _ms(row.data, row.ready), _ms(row.ready, row.reduced)]
            for row in self.rows
        ]


def read(clock: CudaClock, stamp: CudaTimestamp | None) -> float:
    """Return the device's milliseconds of a timestamp that has been reached."""
    assert stamp is not None
    times = clock.read([stamp])
    assert times is not None
    return times[0]


def _ms(begin: int | None, end: int | None) -> float | None:
    return None if begin is None or end is None else round((end - begin) / MS, 1)


# -- the device's clock on the host's ------------------------------------------------------------


def test_timestamps_are_on_the_hosts_clock_for_any_drift_of_the_device() -> None:
    host = HostClock()
    cuda = FakeCuda(host, drift=200e-6)
    clock = CudaClock(cuda, 0, host)
    for _ in range(100):
        stamps: list[tuple[CudaTimestamp, int | None]] = []
        for _ in range(10):
            cuda.work(100 * MS)
            stamp = clock.timestamp()
            assert stamp is not None
            stamps.append((stamp, stamp[0].at))
        host.ns += SECOND
        clock.take_anchor()
        for stamp, truth in stamps:
            time_ns = clock.time_of(read(clock, stamp))
            assert time_ns is not None
            assert truth is not None
            assert clock.error_ns is not None
            # At most the errors of two anchors, and float32 rounding.
            assert abs(time_ns - truth) <= clock.error_ns + 1000
        clock.release([stamp for stamp, _ in stamps])
    assert clock.error_ns is not None
    assert clock.error_ns < 20_000


def test_a_slow_answer_of_the_device_adds_uncertainty() -> None:
    host = HostClock()
    cuda = FakeCuda(host)
    cuda.answers_after_ns = 150_000
    clock = CudaClock(cuda, 0, host)
    assert clock.error_ns is not None
    assert 50_000 < clock.error_ns < 100_000


def test_timestamps_before_the_first_anchor_are_placed_by_it() -> None:
    host = HostClock()
    cuda = FakeCuda(host, drift=100e-6)
    cuda.answers_after_ns = 5 * MS
    clock = CudaClock(cuda, 0, host)
    assert clock.error_ns is None
    cuda.work(20 * MS)
    early = clock.timestamp()
    assert early is not None
    assert clock.read([early]) is None
    host.ns += 500 * MS
    # It is reached, but there is no clock to place it on.
    assert clock.read([early]) is None
    cuda.answers_after_ns = 0
    clock.take_anchor()
    time_ns = clock.time_of(read(clock, early))
    assert time_ns is not None
    assert early[0].at is not None
    assert clock.error_ns is not None
    # The drift of half a second.
    assert abs(time_ns - early[0].at) <= clock.error_ns + 50_000


def test_timestamps_wait_three_seconds_for_a_first_anchor() -> None:
    host = HostClock()
    cuda = FakeCuda(host)
    cuda.answers_after_ns = 5 * MS
    clock = CudaClock(cuda, 0, host)
    early = clock.timestamp()
    assert early is not None
    host.ns += 2 * SECOND
    assert clock.read([early]) is None
    host.ns += 2 * SECOND
    assert clock.read([early]) == []
    assert clock.timestamp() is None
    cuda.answers_after_ns = 0
    clock.take_anchor()
    assert clock.timestamp() is not None


def test_far_from_all_anchors_there_are_no_timestamps() -> None:
    host = HostClock()
    cuda = FakeCuda(host)
    clock = CudaClock(cuda, 0, host)
    cuda.answers_after_ns = 5 * MS
    near = clock.timestamp()
    host.ns += 2 * SECOND
    far = clock.timestamp()
    host.ns += MS
    clock.take_anchor()
    assert clock.time_of(read(clock, near)) is not None
    assert clock.time_of(read(clock, far)) is None
    cuda.answers_after_ns = 0
    clock.take_anchor()
    assert clock.time_of(read(clock, far)) is not None


def test_a_captured_graph_contains_no_timestamps() -> None:
    training = Training()
    training.cuda.capturing = True
    assert training.clock.timestamp() is None


def test_while_a_graph_is_captured_the_device_is_not_queried() -> None:
    training = Training()
    training.iteration()
    training.host.ns += SECOND
    training.cuda.capturing = True
    # A query would fail now, and break the clock.
    training.cuda.failed = True
    training.settle()
    assert training.rows == []
    assert training.clock.broken is None
    training.cuda.capturing = training.cuda.failed = False
    training.settle()
    assert len(training.rows) == 1
    assert training.rows[0].ready is not None


def test_the_flushing_thread_reads_beside_a_thread_that_captures_a_graph() -> None:
    training = Training(read_beside=True)
    training.iteration()
    training.host.ns += SECOND
    training.cuda.capturing = True
    training.settle()
    assert [row.ready is not None for row in training.rows] == [True]
    # The mode of the thread is as before.
    assert training.cuda.mode == 0


def test_training_itself_reads_nothing_where_the_flushing_thread_does() -> None:
    training = Training(read_beside=True)
    for _ in range(20):
        training.iteration()
        training.host.ns += SECOND
    assert not any(waiting.is_read for waiting, _ in training.late._waiting if waiting is not None)
    training.settle()
    assert len(training.rows) == 20
    assert all(row.ready is not None for row in training.rows)


def test_a_mode_that_cannot_be_set_leaves_the_reading_to_training() -> None:
    training = Training(read_beside=True)
    training.cuda.refuses_modes = True
    training.settle()
    assert not training.late.is_read_beside
    training.iteration()
    training.host.ns += SECOND
    training.cuda.capturing = True
    training.settle()
    assert training.rows == []
    assert training.clock.broken is None


# -- rows that wait ------------------------------------------------------------------------------


def test_rows_wait_for_the_device_and_are_written_in_order() -> None:
    training = Training()
    for _ in range(5):
        training.iteration(compute_ms=20, reduce_ms=10)
    training.settle()
    assert training.rows == []
    training.host.ns += 65 * MS
    training.settle()
    assert [row.step for row in training.rows] == [0, 1]
    training.host.ns += SECOND
    training.settle()
    assert [row.step for row in training.rows] == [0, 1, 2, 3, 4]
    assert training.stages_ms() == [[0.0, 20.0, 10.0]] * 5
    assert all(
        before.end <= after.begin + 1000
        for before, after in zip(training.rows, training.rows[1:], strict=False)
    )


def test_a_step_that_is_complete_before_an_earlier_one_waits_for_it() -> None:
    training = Training()
    training.iteration(compute_ms=500)
    busy, training.cuda.current = training.cuda.current, type(training.cuda.current)()
    training.iteration(compute_ms=1)
    training.host.ns += 100 * MS
    training.settle()
    assert busy.free_at > training.host.ns
    assert training.rows == []
    training.host.ns += SECOND
    training.settle()
    assert [row.step for row in training.rows] == [0, 1]


def test_the_hosts_lead_is_not_input_and_a_wait_of_the_device_is() -> None:
    training = Training()
    for _ in range(10):
        # The batch takes 5 ms, while the device is still busy for longer.
        training.iteration(fetch_ms=5, compute_ms=40, reduce_ms=10)
    training.host.ns += SECOND
    training.iteration(fetch_ms=30, compute_ms=40, reduce_ms=10)
    training.host.ns += SECOND
    training.settle()
    assert training.stages_ms() == [
        [5.0, 40.0, 10.0],
        *[[0.0, 40.0, 10.0]] * 9,
        [30.0, 40.0, 10.0],
    ]


def test_no_timestamp_is_before_the_host_launched_its_step() -> None:
    training = Training(drift=-400e-6)
    asked = []
    for _ in range(50):
        asked.append(training.host.ns)
        training.iteration(compute_ms=3, reduce_ms=1)
        training.host.ns += 20 * MS
    training.settle()
    assert len(training.rows) == 50
    for began, row in zip(asked, training.rows, strict=True):
        stamps = [row.begin, row.data, row.ready, row.reduced, row.end]
        assert None not in stamps
        assert [began, *stamps] == sorted([began, *stamps])  # type: ignore[type-var,list-item]


def test_an_inexact_clock_of_the_device_moves_no_timestamp_before_its_step() -> None:
    training = Training()
    training.cuda.answers_after_ns = 180_000
    training.host.ns += SECOND
    # The device answers late, so its times seem to be earlier than they are.
    training.clock.take_anchor()
    for _ in range(5):
        training.iteration(compute_ms=3, reduce_ms=1)
        training.host.ns += 20 * MS
    training.settle()
    for row in training.rows:
        stamps = [row.begin, row.data, row.ready, row.reduced, row.end]
        assert None not in stamps
        assert stamps == sorted(stamps)  # type: ignore[type-var]


def test_accumulated_iterations_are_one_step_in_the_devices_time() -> None:
    training = Training()
    for _ in range(2):
        training.iteration(fetch_ms=3, reductions=0)
        training.iteration(fetch_ms=3, compute_ms=5, reduce_ms=2)
    training.host.ns += SECOND
    training.settle()
    assert [(row.step, row.micro, row.samples) for row in training.rows] == [(0, 2, 32), (1, 2, 32)]
    assert training.stages_ms()[0] == [6.0, 5.0, 2.0]


def test_several_reductions_in_an_iteration_are_steps_in_the_devices_time() -> None:
    training = Training()
    training.iteration(reductions=2)
    training.host.ns += SECOND
    training.settle()
    assert [(row.step, row.samples) for row in training.rows] == [(0, 16), (1, 0)]
    assert training.stages_ms() == [[0.0, 2.0, 1.0]] * 2


def test_a_device_that_waits_for_other_ranks_does_not_compute() -> None:
    training = Training()
    training.iteration(compute_ms=4, reduce_ms=1, gather_ms=20)
    training.host.ns += SECOND
    training.settle()
    assert training.stages_ms() == [[0.0, 4.0, 21.0]]


def test_one_process_has_reduced_what_is_ready() -> None:
    training = Training(single=True)
    training.iteration()
    training.host.ns += SECOND
    training.settle()
    [row] = training.rows
    assert row.ready == row.reduced


def test_iterations_without_any_reduction_are_steps() -> None:
    training = Training()
    for _ in range(3):
        training.iteration(reductions=0)
    given_up = training.assembler.give_up()
    training.late.add(None, [row._replace(step=at) for at, row in enumerate(given_up)])
    training.iteration(reductions=0)
    training.host.ns += SECOND
    training.settle()
    assert [row.step for row in training.rows] == [0, 1, 2, 0]
    assert all(row.data is not None for row in training.rows)


def test_events_are_used_again() -> None:
    training = Training()
    events = []
    for _ in range(20):
        for _ in range(50):
            training.iteration()
        training.host.ns += SECOND
        training.settle()
        events.append(training.cuda.events)
    assert len(training.rows) == 1000
    # One anchor for every time, and nothing else, once there are enough of them.
    assert events[-1] - events[1] == 18


# -- devices that do not answer ------------------------------------------------------------------


def without_stages(rows: list[StepRow]) -> bool:
    return all(row.data is row.ready is row.reduced is None for row in rows)


def test_a_device_that_hangs_costs_the_end_of_training_two_seconds_and_the_stages(
    caplog: pytest.LogCaptureFixture,
) -> None:
    training = Training()
    training.iteration()
    training.host.ns += SECOND
    training.cuda.current.free_at = NEVER
    for _ in range(3):
        training.iteration()
    before = training.host.ns
    training.settle(last=True)
    assert 2 * SECOND <= training.host.ns - before < 4 * SECOND
    assert [row.step for row in training.rows] == [0, 1, 2, 3]
    assert training.stages_ms()[0] == [0.0, 2.0, 1.0]
    assert without_stages(training.rows[1:])
    assert training.late.lost == 3
    assert caplog.text.count("too far behind the host") == 1


def test_the_last_steps_are_waited_for() -> None:
    training = Training()
    training.iteration(compute_ms=700)
    training.settle(last=True)
    assert training.stages_ms() == [[0.0, 700.0, 1.0]]
    assert training.late.lost == 0


def test_the_number_of_waiting_iterations_is_limited(caplog: pytest.LogCaptureFixture) -> None:
    training = Training()
    training.cuda.current.free_at = NEVER
    for _ in range(MOST_WAITING + 100):
        training.iteration()
    training.settle()
    assert [row.step for row in training.rows] == list(range(100))
    assert without_stages(training.rows)
    assert training.late.lost == 100
    assert caplog.text.count("too far behind the host") == 1


def test_completed_iterations_make_place_without_a_flush() -> None:
    training = Training()
    for _ in range(MOST_WAITING + 1):
        training.iteration(compute_ms=0, reduce_ms=0)
        training.host.ns += MS
    training.settle()
    assert len(training.rows) == MOST_WAITING + 1
    assert training.late.lost == 0


def test_a_device_that_fails_leaves_the_hosts_rows() -> None:
    training = Training()
    training.iteration()
    training.host.ns += SECOND
    training.settle()
    training.iteration()
    training.cuda.failed = True
    training.iteration()
    training.settle()
    training.iteration()
    training.settle(last=True)
    assert [row.step for row in training.rows] == [0, 1, 2, 3]
    assert training.stages_ms()[0] == [0.0, 2.0, 1.0]
    assert without_stages(training.rows[1:])
    assert training.clock.broken is not None
    assert "device-side assert" in training.clock.broken


def test_a_missing_timestamp_makes_only_its_stage_null() -> None:
    training = Training()
    training.iteration()
    waiting = training.late._waiting[0][0]
    assert waiting is not None
    begin, _, ready, end, goes_on = waiting.device
    waiting.device = begin, None, ready, end, goes_on
    training.host.ns += SECOND
    training.settle()
    assert training.stages_ms() == [[None, None, 1.0]]

"""Make rows of steps on an asynchronous device once the device has finished them.

The number and the samples of a step are known when the host ends its iteration. Its times are those of
the device's stream, start and end included. The host runs ahead of the device without waiting, and its
work meanwhile costs nothing: the host's own times would show the lead as input.

The flushing thread reads the device's times and makes rows of them. A query of a thread breaks a CUDA
graph that another one captures, unless CUDA is told otherwise (``capture_mode_exchange``). Where it
cannot be told, the training thread reads, a few iterations in each step.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from itertools import chain
from typing import Any, Callable, Deque, List, Optional, Tuple

from ..guards import take_ready, yield_to_training
from ..loop_steps import Iteration, Reduction, StepAssembler
from ..step_log.line_format import StepRow
from .cuda import CudaClock, CudaTimestamp

logger = logging.getLogger("stallscope")

# Iterations that wait for the device; a longer lag loses its times, which limits memory.
_MOST_WAITING = 4096
# Iterations that are read at once in a step of training.
_TOGETHER = 16
# The longest time between two readings, each of which may take an anchor.
_SELDOM_NS = 250_000_000
# The last steps must not delay the end of training.
_PATIENCE_NS = 2_000_000_000
_PAUSE_SECONDS = 0.002
# Rounding may exchange timestamps that follow each other closely.
_ROUNDING_NS = 5_000


#: The device's timestamps of an iteration: its start, the arrival of its batch, its last gradient and
#: its end; and whether the next iteration starts at that end. A bare tuple, like ``FinishedIteration``.
DeviceTimes = Tuple[
    Optional[CudaTimestamp],
    Optional[CudaTimestamp],
    Optional[CudaTimestamp],
    Optional[CudaTimestamp],
    bool,
]


class DeviceIteration:
    """An iteration that the host has ended, but maybe not the device.

    Args:
        iteration: its values on the host.
        end: its end on the host, in monotonic nanoseconds.
        device: its timestamps of the device.
    """

    __slots__ = ("device", "end", "is_read", "iteration", "read_ms", "timestamps")

    def __init__(self, iteration: Iteration, end: int, device: DeviceTimes) -> None:
        self.iteration = iteration
        self.end = end
        self.device = device
        #: Whether nothing more is read; ``read_ms`` is None where the device gave no times.
        self.is_read = False
        self.read_ms: Optional[List[float]] = None
        self.timestamps = self._all_timestamps()

    def _all_timestamps(self) -> List[CudaTimestamp]:
        """Return the timestamps to read, the end first: until it is reached, no other is queried."""
        begin, data, ready, end, _ = self.device
        timestamps: List[Any] = [end, begin, data, ready]
        for reduction in self.iteration.reductions:
            timestamps += (
                reduction.device_ready,
                reduction.device_reduced,
                *chain.from_iterable(reduction.device_waits),
            )
        return [timestamp for timestamp in timestamps if timestamp is not None]

    def milliseconds(self) -> Callable[[Optional[CudaTimestamp]], Optional[float]]:
        """Return a function from a timestamp to its milliseconds, None for unread ones."""
        read = {id(timestamp): ms for timestamp, ms in zip(self.timestamps, self.read_ms or [])}
        return lambda timestamp: None if timestamp is None else read.get(id(timestamp))

    def used_up(self) -> List[CudaTimestamp]:
        """Return the timestamps that nothing needs any more."""
        *_, end, goes_on = self.device
        return [timestamp for timestamp in self.timestamps if not (goes_on and timestamp is end)]


#: The host's rows of an iteration; None: of all earlier iterations.
_HostRows = Tuple[Optional[DeviceIteration], List[StepRow]]
#: An iteration in the device's times, its end, and its last gradient where no reduction is seen.
_Times = Tuple[Iteration, int, Optional[int]]
#: From a timestamp to monotonic nanoseconds.
_TimeOf = Callable[[Optional[CudaTimestamp]], Optional[int]]


class DeviceSteps:
    """Rows that wait for the device, in order.

    The flushing thread calls ``add``, ``read`` and ``settle``, and the training thread ``read_some``
    where only it may query the device. ``assembler`` joins iterations like the recording's own but must
    be another object; ``emit`` receives the rows with the device's times.
    """

    def __init__(
        self,
        device: CudaClock,
        assembler: StepAssembler,
        emit: Callable[[StepRow], None],
        now: Callable[[], int] = time.monotonic_ns,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._device = device
        self._assembler = assembler
        self._emit = emit
        self._now = now
        self._sleep = sleep
        self._unread: Deque[DeviceIteration] = deque()
        self._waiting: Deque[_HostRows] = deque()
        self._reads = threading.Lock()
        self._settles = threading.Lock()
        self._read_at = now()
        # The end of the last iteration that was emitted, which may be the start of the next.
        self._last_end: Tuple[Optional[CudaTimestamp], Optional[int]] = (None, None)
        self._warned = False
        #: Iterations without times from the device.
        self.lost = 0

    @property
    def is_read_beside(self) -> bool:
        """Return whether the flushing thread may read while training captures a CUDA graph."""
        return self._device.is_read_beside

    # -- reading ---------------------------------------------------------------------------------

    def read_some(self, now: int) -> None:
        """Read the times of a few iterations on the training thread, where no other may."""
        if self.is_read_beside:
            return
        if self._unread or now - self._read_at >= _SELDOM_NS:
            self.read(_TOGETHER)

    def read(self, most: int = _MOST_WAITING, last: bool = False) -> None:
        """Read the times of iterations that the device has finished; the ``last`` time, of all.

        Where a query would break a CUDA graph that is captured, nothing is read.
        """
        # A hanging driver blocks the thread that queries it, and must not block this one.
        if not self._reads.acquire(timeout=_PATIENCE_NS / 1e9):
            return
        try:
            self._read_if_allowed(most, last)
        except Exception as error:  # training will meet the same error
            self._device.broken = repr(error)
        finally:
            self._reads.release()
        if self._device.broken is not None:
            self._drop_all_but(0)

    def _read_if_allowed(self, most: int, last: bool) -> None:
        with self._device.queried() as may_query:
            if not may_query:
                return
            self._read_reached(most)
            if last:
                deadline = self._now() + _PATIENCE_NS
                while self._unread and self._now() < deadline:
                    self._sleep(_PAUSE_SECONDS)
                    self._read_reached(most)
            self._drop_all_but(0 if last else _MOST_WAITING)

    def _read_reached(self, most: int) -> None:
        device, unread = self._device, self._unread
        if device.broken is not None:
            return
        self._read_at = self._now()
        device.take_anchor()
        for done in range(1, most + 1):
            times_ms = device.read(unread[0].timestamps) if unread else None
            if times_ms is None:
                return
            iteration = unread.popleft()
            iteration.read_ms = times_ms
            iteration.is_read = True
            yield_to_training(done)

    def _drop_all_but(self, most: int) -> None:
        if len(self._unread) > most and self._device.broken is None and not self._warned:
            self._warned = True
            logger.warning(
                "stallscope: the device is too far behind the host to be waited for; for some steps"
                " only the host's own start and end are recorded"
            )
        while len(self._unread) > most:
            self._unread.popleft().is_read = True

    # -- rows ------------------------------------------------------------------------------------

    def add(self, finished: Optional[DeviceIteration], rows: List[StepRow]) -> None:
        """Add the host's numbered rows of an iteration, or of all earlier ones where it is None."""
        self._waiting.append((finished, rows))
        if finished is not None:
            self._unread.append(finished)

    def settle(self) -> None:
        """Emit the rows of all iterations that have been read."""
        if not self._settles.acquire(timeout=_PATIENCE_NS / 1e9):
            return
        try:
            for finished, rows in take_ready(self._waiting, _is_read):
                self._emit_timed(finished, rows)
        finally:
            self._settles.release()

    def _emit_timed(self, finished: Optional[DeviceIteration], rows: List[StepRow]) -> None:
        if finished is None:
            timed = self._assembler.give_up()
        else:
            times = self._times(finished)
            self.lost += times is None
            timed = self._assembler.rows(*(times or _without_stages(finished)))
            if finished.read_ms is not None:
                self._device.release(finished.used_up())
        for row, timed_row in zip(rows, timed):
            numbered = timed_row._replace(step=row.step, epoch=row.epoch, clock=row.clock)
            self._emit(
                numbered._replace(micro=row.micro, samples=row.samples, elements=row.elements)
            )

    def _times(self, finished: DeviceIteration) -> Optional[_Times]:
        """Return the iteration in the device's times; None where start or end is unknown."""
        host, milliseconds = finished.iteration, finished.milliseconds()

        def time_of(timestamp: Optional[CudaTimestamp]) -> Optional[int]:
            at = self._device.time_of(milliseconds(timestamp))
            # The device cannot do anything of an iteration before the host starts it.
            return None if at is None else max(at, host.begin)

        device_begin, device_data, device_ready, device_end, _ = finished.device
        begin, end = self._begin(device_begin, time_of), time_of(device_end)
        self._last_end = (None, None)
        if begin is None or end is None:
            return None
        iteration = _copy_of(host, max(begin, host.begin))
        iteration.data = at = _not_before(iteration.begin, time_of(device_data))
        for reduction in host.reductions:
            ready = _not_before(at, time_of(reduction.device_ready))
            reduced = _not_before(ready, time_of(reduction.device_reduced))
            waited = _waited(reduction, time_of)
            known = None if waited is None else ready
            iteration.reductions.append(
                Reduction(reduction.cause, known, reduced, waited=waited or 0)
            )
            at = reduced or ready or at
        ready = _not_before(at, time_of(device_ready))
        end = max(end, at or iteration.begin)
        self._last_end = device_end, end
        return iteration, end, ready

    def _begin(self, device_begin: Optional[CudaTimestamp], time_of: _TimeOf) -> Optional[int]:
        """Return the start, which is the end before it if both are the same timestamp.

        Later anchors would shift it slightly, by less than the clock's error.
        """
        timestamp, end = self._last_end
        begins_at_end = timestamp is not None and device_begin is timestamp
        return end if begins_at_end else time_of(device_begin)


def _is_read(waiting: _HostRows) -> bool:
    finished, _ = waiting
    return finished is None or finished.is_read


def _waited(reduction: Reduction, time_of: _TimeOf) -> Optional[int]:
    """Return the device's time in collectives before a reduction; None where it is unknown."""
    waited_ns = 0
    for began, ended in reduction.device_waits:
        start, end = time_of(began), time_of(ended)
        if start is None or end is None:
            return None
        waited_ns += max(0, end - start)
    return waited_ns


def _copy_of(host: Iteration, begin: int) -> Iteration:
    iteration = Iteration(host.epoch, begin, host.clock)
    iteration.samples, iteration.micro = host.samples, host.micro
    return iteration


def _without_stages(finished: DeviceIteration) -> _Times:
    """Return the iteration in the host's times, without stages, to count its steps."""
    iteration = _copy_of(finished.iteration, finished.iteration.begin)
    iteration.reductions = [
        Reduction(reduction.cause, None, None) for reduction in finished.iteration.reductions
    ]
    return iteration, finished.end, None


def _not_before(earlier: Optional[int], timestamp: Optional[int]) -> Optional[int]:
    if earlier is None or timestamp is None or not 0 < earlier - timestamp <= _ROUNDING_NS:
        return timestamp
    return earlier

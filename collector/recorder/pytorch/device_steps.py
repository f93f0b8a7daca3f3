"""Make rows of steps on an asynchronous device once the device has finished them.

The number and the samples of a step are known when the host ends its iteration. Its times are those of
the device's stream, start and end included. The host runs ahead of the device without waiting, and its
work meanwhile costs nothing: the host's own times would show the lead as input.

Only the training thread may query the device, because a query of another thread would break a CUDA graph
that it captures. The flushing thread chooses the timestamps to read, and makes rows of them.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from itertools import chain
from typing import Any, Callable, Deque, List, Optional, Tuple

from ..guards import take_ready
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


class DeviceIteration:
    """An iteration that the host has ended, but maybe not the device."""

    __slots__ = (
        "device_end",
        "device_ready",
        "end",
        "is_read",
        "iteration",
        "keeps_end",
        "read_ms",
        "timestamps",
    )

    def __init__(
        self,
        iteration: Iteration,
        end: int,
        device_end: Optional[CudaTimestamp],
        device_ready: Optional[CudaTimestamp],
        keeps_end: bool,
    ) -> None:
        self.iteration = iteration
        self.end = end
        self.device_end = device_end
        self.device_ready = device_ready
        #: Whether its end is also the start of the next iteration, which is read later.
        self.keeps_end = keeps_end
        #: Whether nothing more is read; ``read_ms`` is None where the device gave no times.
        self.is_read = False
        self.read_ms: Optional[List[float]] = None

    def prepare(self) -> None:
        """List the timestamps to read, the end first: until it is reached, no other is queried."""
        iteration = self.iteration
        timestamps: List[Any] = [
            self.device_end,
            iteration.device_begin,
            iteration.device_data,
            self.device_ready,
        ]
        for reduction in iteration.reductions:
            timestamps += (
                reduction.device_ready,
                reduction.device_reduced,
                *chain.from_iterable(reduction.device_waits),
            )
        self.timestamps = [timestamp for timestamp in timestamps if timestamp is not None]

    def milliseconds(self) -> Callable[[Optional[CudaTimestamp]], Optional[float]]:
        """Return a function from a timestamp to its milliseconds, None for unread ones."""
        read = {id(timestamp): ms for timestamp, ms in zip(self.timestamps, self.read_ms or [])}
        return lambda timestamp: None if timestamp is None else read.get(id(timestamp))

    def used_up(self) -> List[CudaTimestamp]:
        """Return the timestamps that nothing needs any more."""
        kept = self.device_end if self.keeps_end else None
        return [timestamp for timestamp in self.timestamps if timestamp is not kept]


#: The host's rows of an iteration; None: of all earlier iterations.
_HostRows = Tuple[Optional[DeviceIteration], List[StepRow]]
#: An iteration in the device's times, its end, and its last gradient where no reduction is seen.
_Times = Tuple[Iteration, int, Optional[int]]
#: From a timestamp to monotonic nanoseconds.
_TimeOf = Callable[[Optional[CudaTimestamp]], Optional[int]]


class DeviceSteps:
    """Rows that wait for the device, in order.

    The training thread calls ``finished`` and ``read``, and the flushing thread ``add`` and ``settle``.
    ``assembler`` joins iterations like the recording's own but must be another object; ``emit``
    receives the rows with the device's times.
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

    # -- the training thread ---------------------------------------------------------------------

    def finished(
        self,
        iteration: Iteration,
        end: int,
        device_ready: Optional[CudaTimestamp],
        keeps_end: bool = False,
    ) -> DeviceIteration:
        """End an iteration on the host, with a timestamp of the device."""
        return DeviceIteration(iteration, end, self._device.timestamp(), device_ready, keeps_end)

    def read_some(self, now: int) -> None:
        """Read the times of a few iterations, if any wait."""
        if self._unread or now - self._read_at >= _SELDOM_NS:
            self.read(_TOGETHER)

    def read(self, most: int = _MOST_WAITING, last: bool = False) -> None:
        """Read the times of iterations that the device has finished; the ``last`` time, of all.

        While a CUDA graph is captured, nothing is read: a query would break it.
        """
        if self._device.is_capturing:
            return
        # A hanging driver blocks the thread that queries it, and must not block this one.
        if not self._reads.acquire(timeout=_PATIENCE_NS / 1e9):
            return
        try:
            self._read_reached(most)
            if last:
                deadline = self._now() + _PATIENCE_NS
                while self._unread and self._now() < deadline:
                    self._sleep(_PAUSE_SECONDS)
                    self._read_reached(most)
            self._drop_all_but(0 if last or self._device.broken is not None else _MOST_WAITING)
        finally:
            self._reads.release()

    def _read_reached(self, most: int) -> None:
        device, unread = self._device, self._unread
        if device.broken is not None:
            return
        self._read_at = self._now()
        try:
            with device.selected():
                device.take_anchor()
                while unread and most:
                    times_ms = device.read(unread[0].timestamps)
                    if times_ms is None:
                        return
                    iteration = unread.popleft()
                    iteration.read_ms = times_ms
                    iteration.is_read = True
                    most -= 1
        except Exception as error:  # training will meet the same error
            device.broken = repr(error)

    def _drop_all_but(self, most: int) -> None:
        if len(self._unread) > most and self._device.broken is None and not self._warned:
            self._warned = True
            logger.warning(
                "stallscope: the device is too far behind the host to be waited for; for some steps"
                " only the host's own start and end are recorded"
            )
        while len(self._unread) > most:
            self._unread.popleft().is_read = True

    # -- the flushing thread ---------------------------------------------------------------------

    def add(self, finished: Optional[DeviceIteration], rows: List[StepRow]) -> None:
        """Add the host's numbered rows of an iteration, or of all earlier ones where it is None."""
        self._waiting.append((finished, rows))
        if finished is not None:
            finished.prepare()
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
            numbered = timed_row._replace(step=row.step, micro=row.micro, samples=row.samples)
            self._emit(numbered._replace(epoch=row.epoch, clock=row.clock))

    def _times(self, finished: DeviceIteration) -> Optional[_Times]:
        """Return the iteration in the device's times; None where start or end is unknown."""
        host, milliseconds = finished.iteration, finished.milliseconds()

        def time_of(timestamp: Optional[CudaTimestamp]) -> Optional[int]:
            at = self._device.time_of(milliseconds(timestamp))
            # The device cannot do anything of an iteration before the host starts it.
            return None if at is None else max(at, host.begin)

        begin, end = self._begin(host, time_of), time_of(finished.device_end)
        self._last_end = (None, None)
        if begin is None or end is None:
            return None
        iteration = _copy_of(host, max(begin, host.begin))
        iteration.data = at = _not_before(iteration.begin, time_of(host.device_data))
        for reduction in host.reductions:
            ready = _not_before(at, time_of(reduction.device_ready))
            reduced = _not_before(ready, time_of(reduction.device_reduced))
            waited = _waited(reduction, time_of)
            known = None if waited is None else ready
            iteration.reductions.append(
                Reduction(reduction.cause, known, reduced, waited=waited or 0)
            )
            at = reduced or ready or at
        ready = _not_before(at, time_of(finished.device_ready))
        end = max(end, at or iteration.begin)
        self._last_end = finished.device_end, end
        return iteration, end, ready

    def _begin(self, host: Iteration, time_of: _TimeOf) -> Optional[int]:
        """Return the start, which is the end before it if both are the same timestamp.

        Later anchors would shift it slightly, by less than the clock's error.
        """
        timestamp, end = self._last_end
        begins_at_end = timestamp is not None and host.device_begin is timestamp
        return end if begins_at_end else time_of(host.device_begin)


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

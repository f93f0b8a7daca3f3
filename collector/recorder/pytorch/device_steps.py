"""Steps of an asynchronous device: their rows wait until the device has finished them.

The number and the samples of a step are known when the host ends its iteration. Its times are those of
the device's stream, start and end included. The host runs ahead of the device without waiting, and what
it does meanwhile costs nothing: the host's own times would show the lead as input.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from itertools import chain
from typing import Callable, Deque, List, NamedTuple, Optional, Tuple

from ..format import StepRow
from ..loop_steps import Iteration, Reduction, StepAssembler
from .cuda import CudaClock, CudaTimestamp

logger = logging.getLogger("stallscope")

# Iterations: a device that lags further is not waited for, which also limits memory.
_MOST_WAITING = 4096
# The last steps must not delay the end of training.
_PATIENCE_NS = 2_000_000_000
_PAUSE_SECONDS = 0.002
# Rounding may exchange timestamps that follow each other closely.
_ROUNDING_NS = 5_000


class _FinishedIteration(NamedTuple):
    """An iteration that the host has ended, before an assembler changes it."""

    iteration: Iteration
    begin: int
    end: int
    samples: Optional[int]
    device_end: Optional[CudaTimestamp]
    #: The last gradient, where reductions are not seen.
    device_ready: Optional[CudaTimestamp]
    reductions: List[Reduction]


#: An iteration in the device's times, its end, and its last gradient where no reduction is seen.
_Times = Tuple[Iteration, int, Optional[int]]


class DeviceSteps:
    """Rows that wait, in order. The training thread adds and settles them between iterations.

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
        self._waiting: Deque[Tuple[Optional[_FinishedIteration], List[StepRow]]] = deque()
        self._lock = threading.Lock()
        self._warned = False
        #: Iterations without times from the device.
        self.lost = 0

    def finished(
        self, iteration: Iteration, end: int, device_ready: Optional[CudaTimestamp]
    ) -> _FinishedIteration:
        """Return the iteration as it is now; called before an assembler changes it."""
        device_end = self._device.timestamp()
        reductions = list(iteration.reductions)
        return _FinishedIteration(
            iteration, iteration.begin, end, iteration.samples, device_end, device_ready, reductions
        )

    def add(self, finished: Optional[_FinishedIteration], rows: List[StepRow]) -> None:
        """Add the host's numbered rows of an iteration, or of all earlier ones where it is None."""
        self._waiting.append((finished, rows))
        if len(self._waiting) > _MOST_WAITING:
            with self._lock:
                self._advance()
                self._drop_all_but(_MOST_WAITING)

    def settle(self, last: bool = False) -> None:
        """Emit the rows of all iterations that the device has finished; the ``last`` time, of all.

        A query would break a CUDA graph that is being captured: then nothing is asked.
        """
        if self._device.is_capturing:
            return
        # A hanging driver blocks the thread that queries it, and must not block this one.
        if not self._lock.acquire(timeout=_PATIENCE_NS / 1e9):
            return
        try:
            self._advance()
            if last:
                deadline = self._now() + _PATIENCE_NS
                while self._waiting and self._now() < deadline:
                    self._sleep(_PAUSE_SECONDS)
                    self._advance()
                self._drop_all_but(0)
        finally:
            self._lock.release()

    def _advance(self) -> None:
        for times in self._known():
            self._settle_first(times)
        if self._device.broken is not None:
            while self._waiting:
                self._settle_first(None)

    def _known(self) -> List[Optional[_Times]]:
        """Return the times of iterations that the device has finished, as far as it gives them."""
        found: List[Optional[_Times]] = []
        if self._device.broken is not None:
            return found
        try:
            with self._device.selected():
                self._device.take_anchor()
                for finished, _ in list(self._waiting):
                    timestamps = [] if finished is None else _timestamps_of(finished)
                    if not all(map(self._device.reached, timestamps)):
                        break
                    found.append(None if finished is None else self._times(finished))
                    self._device.release(timestamps)
        except Exception as error:  # training will meet the same error
            self._device.broken = repr(error)
        return found

    def _drop_all_but(self, most: int) -> None:
        if len(self._waiting) > most and not self._warned:
            self._warned = True
            logger.warning(
                "stallscope: the device is too far behind the host to be waited for; for some steps"
                " only the host's own start and end are recorded"
            )
        while len(self._waiting) > most:
            self._settle_first(None)

    def _settle_first(self, times: Optional[_Times]) -> None:
        finished, rows = self._waiting.popleft()
        if finished is None:
            timed = self._assembler.give_up()
        else:
            self.lost += times is None
            timed = self._assembler.rows(*(times or _without_stages(finished)))
        for row, timed_row in zip(rows, timed):
            numbered = timed_row._replace(step=row.step, micro=row.micro, samples=row.samples)
            self._emit(numbered._replace(epoch=row.epoch, clock=row.clock))

    def _times(self, finished: _FinishedIteration) -> Optional[_Times]:
        """Return the iteration in the device's times; None where start or end is unknown."""
        time_of = self._device.time_of
        begin, end = time_of(finished.iteration.device_begin), time_of(finished.device_end)
        if begin is None or end is None:
            return None
        # The stream cannot reach it before the host asked for it.
        iteration = _copy_of(finished, max(begin, finished.begin))
        iteration.data = at = _not_before(iteration.begin, time_of(finished.iteration.device_data))
        for one in finished.reductions:
            ready = _not_before(at, time_of(one.device_ready))
            reduced = _not_before(ready, time_of(one.device_reduced))
            waited = self._waited(one)
            known = None if waited is None else ready
            iteration.reductions.append(Reduction(one.cause, known, reduced, waited=waited or 0))
            at = reduced or ready or at
        ready = _not_before(at, time_of(finished.device_ready))
        return iteration, max(end, at or iteration.begin), ready

    def _waited(self, reduction: Reduction) -> Optional[int]:
        """Return the device's time in collectives before a reduction; None where it is unknown."""
        found = 0
        for began, ended in reduction.device_waits:
            start, end = self._device.time_of(began), self._device.time_of(ended)
            if start is None or end is None:
                return None
            found += max(0, end - start)
        return found


def _timestamps_of(finished: _FinishedIteration) -> List[CudaTimestamp]:
    """Return the timestamps, the end first: a stream that has not reached it is not asked for others."""
    found = [
        finished.device_end,
        finished.iteration.device_begin,
        finished.iteration.device_data,
        finished.device_ready,
    ]
    for one in finished.reductions:
        found += [one.device_ready, one.device_reduced, *chain.from_iterable(one.device_waits)]
    return [timestamp for timestamp in found if timestamp is not None]


def _copy_of(finished: _FinishedIteration, begin: int) -> Iteration:
    iteration = Iteration(finished.iteration.epoch, begin, finished.iteration.clock)
    iteration.samples, iteration.micro = finished.samples, finished.iteration.micro
    return iteration


def _without_stages(finished: _FinishedIteration) -> _Times:
    """Return the iteration in the host's times: the number of its steps is known."""
    iteration = _copy_of(finished, finished.begin)
    iteration.reductions = [Reduction(one.cause, None, None) for one in finished.reductions]
    return iteration, finished.end, None


def _not_before(earlier: Optional[int], timestamp: Optional[int]) -> Optional[int]:
    if earlier is None or timestamp is None or not 0 < earlier - timestamp <= _ROUNDING_NS:
        return timestamp
    return earlier

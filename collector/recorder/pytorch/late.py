"""Steps of a device that works asynchronously: their rows wait until it has got there.

What a step is, its number and its samples are known when the host has ended its turn; its times are
those of the device's stream, begin and end, too. A host that runs ahead of the device waits for
nothing, and what it does meanwhile costs nothing: its own times would show the lead as input.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from typing import Callable, Deque, List, NamedTuple, Optional, Tuple

from ..format import StepRow
from .cuda import CudaClock, Stamp
from .steps import Reduction, StepAssembler, Turn

logger = logging.getLogger("stallscope")

# Turns: a device this far behind is not waited for, and neither is memory for more of them.
_MOST_WAITING = 4096
# The last steps must not hold the end of training.
_PATIENCE_NS = 2_000_000_000
_PAUSE_SECONDS = 0.002
# Timestamps that follow each other at once may be exchanged by rounding.
_ROUNDING_NS = 5_000


class _Ended(NamedTuple):
    """A turn that the host has ended, before anything has changed it."""

    turn: Turn
    begin: int
    end: int
    samples: Optional[int]
    end_mark: Optional[Stamp]
    #: Of gradients whose reduction is not seen.
    ready_mark: Optional[Stamp]
    reductions: List[Reduction]


#: A turn in the device's times, its end, and its gradients where no reduction is seen.
_Times = Tuple[Turn, int, Optional[int]]


class LateSteps:
    """Rows that wait, in order. Added and settled by the training thread, between its turns.

    ``assembler`` joins turns as the recording's own does, of which it must not be the same object;
    ``emit`` takes the rows with the device's times.
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
        self._waiting: Deque[Tuple[Optional[_Ended], List[StepRow]]] = deque()
        self._lock = threading.Lock()
        self._said = False
        #: Turns of which the device has told no times.
        self.lost = 0

    def ended(self, turn: Turn, end: int, ready_mark: Optional[Stamp]) -> _Ended:
        """A turn as it is now; to be called before an assembler changes it."""
        end_mark = self._device.stamp()
        reductions = list(turn.reductions)
        return _Ended(turn, turn.begin, end, turn.samples, end_mark, ready_mark, reductions)

    def add(self, ended: Optional[_Ended], rows: List[StepRow]) -> None:
        """Numbered rows that the host has made of a turn; without one, of all turns up to now."""
        self._waiting.append((ended, rows))
        if len(self._waiting) > _MOST_WAITING:
            with self._lock:
                self._advance()
                self._give_up_but(_MOST_WAITING)

    def settle(self, last: bool = False) -> None:
        """Emit the rows of all turns that the device is through with; the ``last`` time, of all.

        A graph that is being captured would break if the device were asked anything: then nothing is.
        """
        if self._device.is_capturing:
            return
        # A driver that hangs keeps the thread that asked it, and must not keep this one.
        if not self._lock.acquire(timeout=_PATIENCE_NS / 1e9):
            return
        try:
            self._advance()
            if last:
                deadline = self._now() + _PATIENCE_NS
                while self._waiting and self._now() < deadline:
                    self._sleep(_PAUSE_SECONDS)
                    self._advance()
                self._give_up_but(0)
        finally:
            self._lock.release()

    def _advance(self) -> None:
        for times in self._known():
            self._settle_first(times)
        if self._device.broken is not None:
            while self._waiting:
                self._settle_first(None)

    def _known(self) -> List[Optional[_Times]]:
        """The times of the turns that the device is through with, as far as it gives them."""
        found: List[Optional[_Times]] = []
        if self._device.broken is not None:
            return found
        try:
            with self._device.asked():
                self._device.look()
                for ended, _ in list(self._waiting):
                    marks = [] if ended is None else _marks(ended)
                    if not all(map(self._device.reached, marks)):
                        break
                    found.append(None if ended is None else self._times(ended))
                    self._device.release(marks)
        except Exception as error:  # the training's own, which hears of it soon enough
            self._device.broken = repr(error)
        return found

    def _give_up_but(self, most: int) -> None:
        if len(self._waiting) > most and not self._said:
            self._said = True
            logger.warning(
                "stallscope: the device is too far behind the host to be waited for; of some steps only"
                " the host's own begin and end are recorded"
            )
        while len(self._waiting) > most:
            self._settle_first(None)

    def _settle_first(self, times: Optional[_Times]) -> None:
        ended, rows = self._waiting.popleft()
        if ended is None:
            timed = self._assembler.give_up()
        else:
            self.lost += times is None
            timed = self._assembler.rows(*(times or _without_stages(ended)))
        for row, its in zip(rows, timed):
            numbered = its._replace(step=row.step, micro=row.micro, samples=row.samples)
            self._emit(numbered._replace(epoch=row.epoch, clock=row.clock))

    def _times(self, ended: _Ended) -> Optional[_Times]:
        """The turn in the device's times; None where begin and end are not known."""
        time_of = self._device.time_of
        begin, end = time_of(ended.turn.begin_mark), time_of(ended.end_mark)
        if begin is None or end is None:
            return None
        # The stream cannot have got there before the host asked for it.
        turn = _like(ended, max(begin, ended.begin))
        turn.data = at = _not_before(turn.begin, time_of(ended.turn.data_mark))
        for one in ended.reductions:
            ready = _not_before(at, time_of(one.ready_mark))
            reduced = _not_before(ready, time_of(one.reduced_mark))
            turn.reductions.append(Reduction(one.cause, ready, reduced))
            at = reduced or ready or at
        ready = _not_before(at, time_of(ended.ready_mark))
        return turn, max(end, at or turn.begin), ready


def _marks(ended: _Ended) -> List[Stamp]:
    """The end's first: a stream that has not got there is not asked for the others."""
    found = [ended.end_mark, ended.turn.begin_mark, ended.turn.data_mark, ended.ready_mark]
    for one in ended.reductions:
        found += [one.ready_mark, one.reduced_mark]
    return [mark for mark in found if mark is not None]


def _like(ended: _Ended, begin: int) -> Turn:
    turn = Turn(ended.turn.epoch, begin, ended.turn.clock)
    turn.samples = ended.samples
    return turn


def _without_stages(ended: _Ended) -> _Times:
    """The same turn by the host's clock: how many steps it was is known."""
    turn = _like(ended, ended.begin)
    turn.reductions = [Reduction(one.cause, None, None) for one in ended.reductions]
    return turn, ended.end, None


def _not_before(earlier: Optional[int], stamp: Optional[int]) -> Optional[int]:
    if earlier is None or stamp is None or not 0 < earlier - stamp <= _ROUNDING_NS:
        return stamp
    return earlier

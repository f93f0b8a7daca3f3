"""Pass finished calls of the train function from the training thread to the one that makes rows."""

from __future__ import annotations

from collections import deque
from time import monotonic_ns
from typing import Any, Deque, List, Optional, Tuple

from ..clock import read_clocks
from ..cost import Cost
from .steps import Call

#: The most calls that wait for the flushing thread; beyond that the training thread makes rows.
MOST_WAITING = 2048

#: When the timer was entered, when the call started and ended, when the recorder was done with the call
#: before it (None before the first), all in monotonic nanoseconds, and further information about it (see
#: ``timed``). A bare tuple: a named one takes training ten times as long to make.
FinishedCall = Tuple[int, int, int, Optional[int], Any]

#: The time between two checks on the training thread.
CHECK_INTERVAL_NS = 200_000_000


class FinishedCalls:
    """The training thread adds calls; one thread at a time takes them out and makes rows."""

    # Slots, not a dict: the data of every call lies together in memory.
    __slots__ = (
        "_before",
        "_changes",
        "_clock",
        "_cost",
        "_end_without_recorder",
        "_read_at",
        "check_at",
        "checks",
        "epoch",
        "recorded_at",
        "steps",
        "waiting",
    )

    def __init__(self, cost: Cost) -> None:
        #: A deque: one thread appends a FinishedCall while another takes, without a lock.
        self.waiting: Deque[FinishedCall] = deque()
        #: When the recording next checks the training around a call. Comparing with the time, which is
        #: known there, costs training less than counting calls.
        self.check_at = 0
        #: Calls around which the recording has checked.
        self.checks = 0
        #: When the recorder was done with the latest call.
        self.recorded_at: Optional[int] = None
        #: The current epoch, and the steps that the next call will run, as far as the host knows.
        self.epoch: Optional[int] = None
        self.steps = 1
        # Since when calls belong to an epoch and run a number of steps.
        self._changes: Deque[Tuple[int, Optional[int], int]] = deque([(0, None, 1)])
        # When the latest call taken would have ended without the recorder.
        self._end_without_recorder: Optional[int] = None
        self._cost = cost
        # Wall minus monotonic clock as last read, the value before that, and when it was read.
        self._read_at, self._clock = read_clocks()
        self._before = self._clock

    def __len__(self) -> int:
        return len(self.waiting)

    @property
    def steps_waiting(self) -> int:
        """Return the number of steps of the waiting calls."""
        changes = list(self._changes)
        begins = [begin for _, begin, _, _, _ in list(self.waiting)]
        return sum(
            next(steps for since, _, steps in reversed(changes) if since <= begin)
            for begin in begins
        )

    def change(self, epoch: Optional[int], steps: Optional[int] = None) -> None:
        """Set the epoch, and the number of steps if given, of calls that start from here on."""
        steps = self.steps if steps is None else steps
        if (epoch, steps) != (self.epoch, self.steps):
            self.epoch, self.steps = epoch, steps
            self._changes.append((monotonic_ns(), epoch, steps))

    def schedule_check(self, every_call: bool) -> None:
        """From here on, check the training around every call, or only now and then."""
        self.check_at = 0 if every_call else monotonic_ns() + CHECK_INTERVAL_NS

    def take(self, count: Optional[int] = None) -> List[Call]:
        """Take the first ``count`` finished calls, or all of them."""
        count = len(self.waiting) if count is None else count
        finished = [self.waiting.popleft() for _ in range(count)]
        if not finished:
            return []
        before, read_at, at_last, clock = self._read_clock()
        calls, changes = [], self._changes
        for entered, begin, end, recorded_at, seen in finished:
            while len(changes) > 1 and changes[1][0] <= begin:
                changes.popleft()
            _, epoch, steps = changes[0]
            began_with = before if begin < read_at else at_last
            own_ns = self._own_ns(recorded_at)
            calls.append(Call(epoch, begin, end, began_with, clock, steps, seen, own_ns))
            self._end_without_recorder = end - begin + entered
        return calls

    def count(self, own_ns: Optional[int]) -> None:
        """Count the cost of recording a call: the next call's ``own_ns`` and any other cost."""
        if own_ns is not None:
            self._cost.count_iteration(own_ns)

    def call_aborted(self, begin: int) -> Call:
        """Return the call that an exception has just ended; earlier calls are already taken."""
        before, read_at, at_last, clock = self._read_clock()
        return Call(
            self.epoch, begin, None, before if begin < read_at else at_last, clock, self.steps
        )

    def close(self) -> None:
        """End the calls; the cost of the last one is unknown where some were not taken."""
        if not self.waiting:
            self.count(self._own_ns(self.recorded_at))
        self._end_without_recorder = None

    def _own_ns(self, recorded_at: Optional[int]) -> Optional[int]:
        """Return the cost of recording the call that was taken last."""
        end = self._end_without_recorder
        return None if recorded_at is None or end is None else recorded_at - end

    def _read_clock(self) -> Tuple[int, int, int, int]:
        """Return the clock before last, the time of the last reading, the clock then, and the clock now.

        The clock is not read in every call, so the call in which someone set it is unknown. A call
        that ran during the last reading started with the clock of the reading before.
        """
        before, read_at, at_last = self._before, self._read_at, self._clock
        self._before = at_last
        self._read_at, self._clock = read_clocks()
        return before, read_at, at_last, self._clock

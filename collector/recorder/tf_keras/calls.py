"""Calls of the train function that have ended, on their way from the training thread to rows."""

from __future__ import annotations

from collections import deque
from time import monotonic_ns
from typing import Any, Deque, List, Optional, Tuple

from ..clock import read_clocks
from ..cost import Cost
from .steps import Call

#: So many calls do not wait for the flushing thread, if the training looks after them in time.
MOST_WAITING = 2048

#: When the timer was entered, when the call began and ended, when the recording was through with the one
#: before it (None before the first), all in monotonic nanoseconds, and what was seen of it besides
#: (see ``timed``). A bare tuple: one with names takes training ten times as long to make.
EndedCall = Tuple[int, int, int, Optional[int], Any]

#: How long calls go unattended.
LOOK_AGAIN_NS = 200_000_000


class EndedCalls:
    """The training thread puts calls in; one thread at a time takes them out and makes rows."""

    # Not a dict: what every call needs lies side by side.
    __slots__ = (
        "_before",
        "_changes",
        "_clock",
        "_cost",
        "_read_at",
        "_without",
        "epoch",
        "look_at",
        "looked",
        "over",
        "steps",
        "waiting",
    )

    def __init__(self, cost: Cost) -> None:
        #: A deque: one thread appends an EndedCall while another one takes, without a lock.
        self.waiting: Deque[EndedCall] = deque()
        #: From when on the recording has something to look after around the next call. To ask for the
        #: time, which is known there, costs training less than to count calls.
        self.look_at = 0
        #: Calls around which it has.
        self.looked = 0
        #: When the recording was through with the last call.
        self.over: Optional[int] = None
        #: The epoch that runs, and steps that the next call will run, as far as the host can tell.
        self.epoch: Optional[int] = None
        self.steps = 1
        # Since when calls are of which epoch and run how many steps.
        self._changes: Deque[Tuple[int, Optional[int], int]] = deque([(0, None, 1)])
        # When the call that was taken last would have ended without the recorder.
        self._without: Optional[int] = None
        self._cost = cost
        # Wall minus monotonic clock when it was last read, the time before that, and when that was.
        self._read_at, self._clock = read_clocks()
        self._before = self._clock

    def __len__(self) -> int:
        return len(self.waiting)

    @property
    def steps_waiting(self) -> int:
        """Steps that the calls were to run and that were not taken yet."""
        changes = list(self._changes)
        begins = [begin for _, begin, _, _, _ in list(self.waiting)]
        return sum(
            next(steps for since, _, steps in reversed(changes) if since <= begin)
            for begin in begins
        )

    def change(self, epoch: Optional[int], steps: Optional[int] = None) -> None:
        """Calls that begin from here on are of this epoch, and run so many steps, if that is said."""
        steps = self.steps if steps is None else steps
        if (epoch, steps) != (self.epoch, self.steps):
            self.epoch, self.steps = epoch, steps
            self._changes.append((monotonic_ns(), epoch, steps))

    def attend(self, to_all: bool) -> None:
        """Look after every call from here on, or at times."""
        self.look_at = 0 if to_all else monotonic_ns() + LOOK_AGAIN_NS

    def take(self, count: Optional[int] = None) -> List[Call]:
        """The first ``count`` of the calls that have ended, otherwise all of them up to now."""
        count = len(self.waiting) if count is None else count
        ended = [self.waiting.popleft() for _ in range(count)]
        if not ended:
            return []
        before, read_at, at_last, clock = self._read_clock()
        calls, changes = [], self._changes
        for entered, begin, end, over, seen in ended:
            while len(changes) > 1 and changes[1][0] <= begin:
                changes.popleft()
            _, epoch, steps = changes[0]
            began_with = before if begin < read_at else at_last
            own_ns = self._own_ns(over)
            calls.append(Call(epoch, begin, end, began_with, clock, steps, seen, own_ns))
            self._without = end - begin + entered
        return calls

    def count(self, own_ns: Optional[int]) -> None:
        """What recording a call took: ``own_ns`` of the one after it, with all that it took besides."""
        if own_ns is not None:
            self._cost.turn(own_ns)

    def aborted(self, begin: int) -> Call:
        """The call that an exception has just ended; those before it are taken."""
        before, read_at, at_last, clock = self._read_clock()
        return Call(
            self.epoch, begin, None, before if begin < read_at else at_last, clock, self.steps
        )

    def close(self) -> None:
        """There are no further calls; where some were not taken, what the last took is not known."""
        if not self.waiting:
            self.count(self._own_ns(self.over))
        self._without = None

    def _own_ns(self, over: Optional[int]) -> Optional[int]:
        """What recording the call took that was taken last."""
        return None if over is None or self._without is None else over - self._without

    def _read_clock(self) -> Tuple[int, int, int, int]:
        """The clock of the time before last, when it was last read, the clock of then, and of now.

        The clock is not read in every call: if it was set, it is not known in which one. The call
        that ran when it was last read began with the clock of the time before.
        """
        before, read_at, at_last = self._before, self._read_at, self._clock
        self._before = at_last
        self._read_at, self._clock = read_clocks()
        return before, read_at, at_last, self._clock

"""Calls of the train function that have ended, on their way from the training thread to rows."""

from __future__ import annotations

from collections import deque
from typing import Any, Deque, List, Optional, Tuple

from ..clock import read_clocks
from ..cost import Cost
from .steps import Call

#: So many calls do not wait for the flushing thread.
MOST_WAITING = 2048

#: Epoch, begin and end in monotonic nanoseconds, steps that the call was to run, nanoseconds that
#: recording the call before it took (None where nobody knows), and what was seen of it besides (see
#: ``timed``). A bare tuple: one with names takes training ten times as long to make.
EndedCall = Tuple[Optional[int], int, int, int, Optional[int], Any]


class EndedCalls:
    """The training thread puts calls in; whoever makes rows takes them out, one thread at a time."""

    # Not a dict: what every call needs lies side by side.
    __slots__ = (
        "_before",
        "_clock",
        "_cost",
        "_read_at",
        "attentive",
        "besides_ns",
        "ended",
        "epoch",
        "most",
        "own_ns",
        "steps",
        "waiting",
    )

    def __init__(self, cost: Cost) -> None:
        #: A deque: one thread appends an EndedCall while another one takes, without a lock.
        self.waiting: Deque[EndedCall] = deque()
        #: Calls that have ended up to now, and how many that may be before somebody takes them. To count
        #: costs training less than to ask the deque, which lies elsewhere.
        self.ended = 0
        self.most = MOST_WAITING
        #: Whether the recording has something to look after around the next call.
        self.attentive = True
        #: The epoch that runs.
        self.epoch: Optional[int] = None
        #: Steps that the next call will run, as far as the host can tell.
        self.steps = 1
        #: Nanoseconds that recording the last call took.
        self.own_ns: Optional[int] = None
        #: Nanoseconds since then that recording has taken besides those around the calls.
        self.besides_ns = 0
        self._cost = cost
        # Wall minus monotonic clock when it was last read, the time before that, and when that was.
        self._read_at, self._clock = read_clocks()
        self._before = self._clock

    def __len__(self) -> int:
        return len(self.waiting)

    @property
    def steps_waiting(self) -> int:
        """Steps that the calls were to run which nobody has taken yet."""
        return sum(steps for _, _, _, steps, _, _ in self.waiting)

    def take(self, count: Optional[int] = None) -> List[Call]:
        """The first ``count`` of the calls that have ended, otherwise all of them up to now."""
        count = len(self.waiting) if count is None else count
        ended = [self.waiting.popleft() for _ in range(count)]
        if not ended:
            return []
        before, read_at, at_last, clock = self._read_clock()
        calls = []
        for epoch, begin, end, steps, own_ns, seen in ended:
            began_with = before if begin < read_at else at_last
            calls.append(Call(epoch, begin, end, began_with, clock, steps, seen))
            if own_ns is not None:
                self._cost.turn(own_ns)
        self.most += len(ended)
        return calls

    def aborted(self, begin: int) -> Call:
        """The call that an exception has just ended; those before it are taken."""
        before, read_at, at_last, clock = self._read_clock()
        return Call(
            self.epoch, begin, None, before if begin < read_at else at_last, clock, self.steps
        )

    def close(self) -> None:
        """There are no further calls, and all are taken."""
        if self.own_ns is not None:
            self._cost.turn(self.own_ns)
            self.own_ns = None

    def _read_clock(self) -> Tuple[int, int, int, int]:
        """The clock of the time before last, when it was last read, the clock of then, and of now.

        Nobody reads the clock in every call: where it was set, nothing says in which one. The call
        that ran when it was last read began with the clock of the time before.
        """
        before, read_at, at_last = self._before, self._read_at, self._clock
        self._before = at_last
        self._read_at, self._clock = read_clocks()
        return before, read_at, at_last, self._clock

"""Turns that have ended, on their way to rows: what of the work can wait is not done by training."""

from __future__ import annotations

import threading
from collections import deque
from typing import Callable, Deque, List, Optional, Tuple

from ..clock import read_clocks
from ..format import StepRow
from ..guards import let_others_run
from .steps import StepAssembler, Turn

#: So many turns do not wait for the flushing thread.
MOST_WAITING = 4096
# Whoever makes rows right now takes milliseconds; a process that was forked then waits for nobody.
_PATIENCE_SECONDS = 2.0


#: A turn, when it ended, when its last gradient was there, and the nanoseconds that recording it took.
#: A bare tuple: one with names takes training ten times as long to make.
EndedTurn = Tuple[Turn, int, Optional[int], int]


class EndedTurns:
    """Turns come in from the training thread; rows go out in whatever thread settles, in order.

    The flushing thread does so regularly, and whoever needs to know how many steps there were. ``emit``
    takes the rows that a turn makes, and the nanoseconds that recording it took.
    """

    def __init__(
        self, assembler: StepAssembler, emit: Callable[[List[StepRow], int], None]
    ) -> None:
        self._assembler = assembler
        self._emit = emit
        #: A deque: the training thread appends while another one takes, without a lock.
        self.waiting: Deque[EndedTurn] = deque()
        self._settles = threading.Lock()

    def settle(self) -> None:
        """Make rows of all turns that have ended by now; those that another thread has taken are out."""
        if not self._settles.acquire(timeout=_PATIENCE_SECONDS):
            return
        try:
            clock, count = read_clocks()[1], 0
            while self.waiting:
                turn, end, ready, own_ns = self.waiting.popleft()
                turn.clock = clock
                self._emit(self._assembler.rows(turn, end, ready), own_ns)
                count += 1
                let_others_run(count)
        finally:
            self._settles.release()

"""Turns that have ended, on their way to rows: what of the work can wait is not done by training."""

from __future__ import annotations

import threading
from collections import deque
from typing import Callable, Deque, List, Optional, Sequence, Tuple

from ..clock import read_clocks
from ..format import StepRow
from ..guards import let_others_run
from .batches import samples_of
from .steps import Reduction, StepAssembler, Turn

#: So many turns do not wait for the flushing thread.
MOST_WAITING = 2048
# Making rows takes milliseconds; a process that was forked meanwhile does not wait for it.
_PATIENCE_SECONDS = 2.0


#: A turn's epoch, when it began and had its batch, the batch's shape, its reductions, when it ended,
#: when its last gradient was there, and the nanoseconds that recording it took. A bare tuple: one with
#: names takes training ten times as long to make.
EndedTurn = Tuple[
    int, int, Optional[int], Optional[Sequence[int]], List[Reduction], int, Optional[int], int
]


class EndedTurns:
    """Turns come in from the training thread; rows go out in whatever thread settles, in order.

    The flushing thread does so regularly, and so do callers that need the number of steps. ``emit``
    takes the rows that a turn makes, and the nanoseconds that recording it took; ``samples`` are in
    every batch, where the user has said so.
    """

    def __init__(
        self,
        assembler: StepAssembler,
        samples: Optional[int],
        emit: Callable[[List[StepRow], int], None],
    ) -> None:
        self._assembler = assembler
        self._samples = samples
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
                epoch, begin, data, shape, reductions, end, ready, own_ns = self.waiting.popleft()
                turn = Turn(epoch, begin, clock)
                turn.data, turn.reductions = data, reductions
                turn.samples = self._samples or samples_of(shape)
                self._emit(self._assembler.rows(turn, end, ready), own_ns)
                count += 1
                let_others_run(count)
        finally:
            self._settles.release()

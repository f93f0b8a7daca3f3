"""Make rows of finished iterations, outside of the training thread."""

from __future__ import annotations

import threading
from collections import deque
from typing import Any, Callable, Deque, List, Optional, Sequence, Tuple

from ..clock import read_clocks
from ..guards import take_ready
from ..loops.steps import Iteration, Reduction, StepAssembler
from ..step_log.format import StepRow
from .batches import samples_of

#: The most iterations that wait for the flushing thread.
MOST_WAITING = 2048
# Making rows takes milliseconds; a process forked meanwhile must not wait for it.
_PATIENCE_SECONDS = 2.0


#: An iteration's epoch, its start, the arrival of its batch, the batch's shape, its reductions, its end,
#: the time of its last gradient, the nanoseconds that recording it took, its number of batches, and its
#: timestamps of an asynchronous device. A bare tuple: a named one takes training ten times as long.
FinishedIteration = Tuple[
    int,
    int,
    Optional[int],
    Optional[Sequence[int]],
    List[Reduction],
    int,
    Optional[int],
    int,
    int,
    Any,
]


class FinishedIterations:
    """Takes iterations from the training thread and makes rows, in order, on the thread that settles.

    The flushing thread settles regularly, and so do callers that need the number of steps. ``emit``
    receives the rows of an iteration, the nanoseconds that recording it took, and its timestamps of a
    device. ``samples`` is the user's number of samples per batch.
    """

    def __init__(
        self,
        assembler: StepAssembler,
        samples: Optional[int],
        emit: Callable[[List[StepRow], int, Any], None],
    ) -> None:
        self._assembler = assembler
        self._samples = samples
        self._emit = emit
        #: A deque: the training thread appends while another takes, without a lock.
        self.waiting: Deque[FinishedIteration] = deque()
        self._settles = threading.Lock()

    def settle(self) -> None:
        """Make rows of all finished iterations."""
        if not self._settles.acquire(timeout=_PATIENCE_SECONDS):
            return
        try:
            clock = read_clocks()[1]
            for finished in take_ready(self.waiting):
                epoch, begin, data, shape, reductions, end, ready, own_ns, micro, on_device = (
                    finished
                )
                iteration = Iteration(epoch, begin, clock)
                iteration.micro = micro
                iteration.data, iteration.reductions = data, reductions
                iteration.samples = self._samples * micro if self._samples else samples_of(shape)
                self._emit(self._assembler.rows(iteration, end, ready), own_ns, on_device)
        finally:
            self._settles.release()

"""Make rows of iterations once an asynchronous device has finished them."""

from __future__ import annotations

import threading
from collections import deque
from typing import Any, Callable, Deque, List

from ..clock import read_clocks
from ..guards import take_ready
from ..step_log.format import StepRow
from .steps import Iteration, StepAssembler

EmitSteps = Callable[[List[StepRow]], None]


class DeferredSteps:
    """Takes iterations in order, and makes rows on the thread that drains.

    The host may run ahead of the device, and its work meanwhile costs nothing: a step starts, at the
    earliest, when the device has finished the previous one.

    Args:
        assembler: joins iterations into rows.
        costs: receives the nanoseconds that recording an iteration took.
        emit: receives the rows.
    """

    def __init__(
        self, assembler: StepAssembler, costs: Callable[[int], None], emit: EmitSteps
    ) -> None:
        self._assembler = assembler
        self._costs = costs
        self._emit = emit
        #: A deque: the training thread appends while another takes, without a lock.
        self.waiting: Deque[Any] = deque()
        self._drains = threading.Lock()
        #: The number of reductions so far, and when the device has finished the last step.
        self._count = self._done_before = 0
        #: Whether there were iterations, and never a reduction.
        self.gave_up = False

    def drain(self) -> None:
        """Make rows of the iterations that the device has finished."""
        with self._drains:
            clock = read_clocks()[1]
            for entry in take_ready(self.waiting, self._is_ready):
                self._take(entry, clock)

    def _is_ready(self, entry: Any) -> bool:
        """Return whether the device has finished an iteration."""
        raise NotImplementedError

    def _take(self, entry: Any, clock: int) -> None:
        """Make the rows of an iteration."""
        raise NotImplementedError

    def _begin(self, epoch: int, begin: int, data: int, clock: int) -> Iteration:
        """Return an iteration that starts when the previous step is done."""
        iteration = Iteration(epoch, max(begin, self._done_before), clock)
        iteration.data = max(data, iteration.begin)
        return iteration

    def _end(self, iteration: Iteration, end: int, own_ns: int) -> None:
        self._costs(own_ns)
        self._emit(self._assembler.rows(iteration, end))
        if self._assembler.lost_count:
            self._give_up()

    def _give_up(self) -> None:
        """Make every iteration a step if there never was a reduction."""
        rows = self._assembler.give_up()
        self._emit(rows)
        self.gave_up = self.gave_up or bool(rows)

"""Make rows of iterations once the engine has finished them."""

from __future__ import annotations

import threading
import time
from time import monotonic_ns
from typing import Any, Callable, Deque, List, Optional, Tuple

from ..clock import read_clocks
from ..format import StepRow
from ..guards import take_ready
from ..loop_steps import Iteration, Reduction, StepAssembler
from .gradient_probe import Answer

# An engine that takes longer for the last steps must not delay an interval or the end of training.
_PATIENCE_NS = 5_000_000_000
_PAUSE_SECONDS = 0.001

Emit = Callable[[List[StepRow]], None]

#: An iteration's epoch, its start, the arrival of its batch, the batch's samples, and the nanoseconds
#: that recording the iteration took. Then for every reduction in it: when the gradients are ready and
#: when they are reduced, where the engine was asked. A bare list, and a bare tuple with its end: named
#: ones take training ten times as long to make.
RunningIteration = List[Any]
FinishedIteration = Tuple[RunningIteration, int]
OWN_NS, REDUCTIONS = 4, 5


class IterationStream:
    """Takes iterations from ``waiting``, in order, and makes rows on the thread that drains.

    ``costs`` receives the nanoseconds that recording an iteration took, ``emit`` its rows. The host may
    run ahead of the engine, and its work meanwhile costs nothing: a step starts, at the earliest, when
    the previous step is reduced.
    """

    def __init__(
        self,
        waiting: Deque[FinishedIteration],
        single: bool,
        costs: Callable[[int], None],
        emit: Emit,
    ) -> None:
        self._assembler = StepAssembler(True, single)
        self._costs = costs
        self._emit = emit
        self._waiting = waiting
        self._drains = threading.Lock()
        self._count = 0
        self._reduced_before = 0
        self._gave_up = False

    def drain(self) -> None:
        """Make rows of the iterations that the engine has finished."""
        with self._drains:
            clock = read_clocks()[1]
            for finished in take_ready(self._waiting, self._is_known):
                self._make_rows(finished, clock)

    def settle(self) -> None:
        """Wait until all finished iterations are rows."""
        deadline = monotonic_ns() + _PATIENCE_NS
        self.drain()
        while self._waiting and monotonic_ns() < deadline:
            time.sleep(_PAUSE_SECONDS)
            self.drain()

    def close(self) -> bool:
        """Make the last rows; return whether reductions were seen, if there were iterations at all."""
        self.settle()
        rows = self._assembler.give_up()
        self._emit(rows)
        self._gave_up = self._gave_up or bool(rows)
        return not self._gave_up

    @staticmethod
    def _is_known(finished: FinishedIteration) -> bool:
        answers = [answer for reduction in finished[0][REDUCTIONS:] for answer in reduction]
        return all(answer is None or answer.is_there for answer in answers)

    def _make_rows(self, finished: FinishedIteration, clock: int) -> None:
        (epoch, begin, data, samples, own_ns, *asked), end = finished
        iteration = Iteration(epoch, max(begin, self._reduced_before), clock)
        iteration.data = max(data, iteration.begin)
        iteration.samples = samples
        for ready, reduced in asked:
            self._count += 1
            ready_at = _time_of(ready, iteration.data)
            reduction = Reduction(
                self._count, ready_at, _time_of(reduced, ready_at or iteration.data)
            )
            iteration.reduced(reduction)
            self._reduced_before = reduction.reduced or reduction.ready or self._reduced_before
        end = max(end, self._reduced_before, iteration.begin)
        self._costs(own_ns)
        self._emit(self._assembler.rows(iteration, end))
        if self._assembler.lost_count:
            self._gave_up = True
            self._emit(self._assembler.give_up())


def _time_of(answer: Optional[Answer], earliest: int) -> Optional[int]:
    """Return the time of an answer; the engine's thread may report it late."""
    return None if answer is None else max(answer.take(), earliest)

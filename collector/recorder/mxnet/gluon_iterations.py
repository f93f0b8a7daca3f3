"""Make rows of iterations once the engine has finished them."""

from __future__ import annotations

import time
from time import monotonic_ns
from typing import TYPE_CHECKING, Any, Callable, Deque, List, Optional, Tuple

from ..loop_steps import DeferredSteps, EmitSteps, Reduction, StepAssembler, elements_of

if TYPE_CHECKING:
    from .gradient_probe import Answer

# An engine that takes longer for the last steps must not delay an interval or the end of training.
_PATIENCE_NS = 5_000_000_000
_PAUSE_SECONDS = 0.001

#: An iteration's epoch, its start, the arrival of its batch, the batch's shape, and the nanoseconds
#: that recording the iteration took. Then for every reduction in it: when the gradients are ready and
#: when they are reduced, where the engine was asked. A bare list, and a bare tuple with its end: named
#: ones take training ten times as long to make.
RunningIteration = List[Any]
FinishedIteration = Tuple[RunningIteration, int]
OWN_NS, REDUCTIONS = 4, 5


class IterationStream(DeferredSteps):
    """Takes iterations; a step is done when it is reduced.

    Args:
        single: whether there is one process, with which ready gradients need no reduction.
    """

    waiting: Deque[FinishedIteration]

    def __init__(self, single: bool, costs: Callable[[int], None], emit: EmitSteps) -> None:
        super().__init__(StepAssembler(True, single), costs, emit)

    def settle(self) -> None:
        """Wait until all finished iterations are rows."""
        deadline = monotonic_ns() + _PATIENCE_NS
        self.drain()
        while self.waiting and monotonic_ns() < deadline:
            time.sleep(_PAUSE_SECONDS)
            self.drain()

    def close(self) -> None:
        """Make the last rows."""
        self.settle()
        self._give_up()

    def _is_ready(self, entry: FinishedIteration) -> bool:
        answers = [answer for reduction in entry[0][REDUCTIONS:] for answer in reduction]
        return all(answer is None or answer.is_there for answer in answers)

    def _take(self, entry: FinishedIteration, clock: int) -> None:
        (epoch, begin, data, shape, own_ns, *asked), end = entry
        iteration = self._begin(epoch, begin, data, clock)
        assert iteration.data is not None
        iteration.samples = int(shape[0]) if shape else None
        iteration.elements = elements_of(shape)
        for ready, reduced in asked:
            self._count += 1
            ready_at = _time_of(ready, iteration.data)
            reduced_at = _time_of(reduced, ready_at or iteration.data)
            iteration.reduced(Reduction(self._count, ready_at, reduced_at))
            self._done_before = reduced_at or ready_at or self._done_before
        self._end(iteration, max(end, self._done_before, iteration.begin), own_ns)


def _time_of(answer: Optional[Answer], earliest: int) -> Optional[int]:
    """Return the time of an answer; the engine's thread may report it late."""
    return None if answer is None else max(answer.take(), earliest)

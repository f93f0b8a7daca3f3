"""Make rows of iterations once the engine has finished them; find the gradient that finishes last."""

from __future__ import annotations

import time
from time import monotonic_ns
from typing import TYPE_CHECKING, Any, Callable, Deque, List, Optional, Sequence, Tuple

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


# -- Find the gradient that finishes last: asking MXNet's engine for that one is enough ------------

# The number of groups per question.
_GROUPS = 10
# The time within which the engine reports gradients that are ready already.
_AT_ONCE_NS = 100_000
# Steps until a result is checked again: a new result, and one that was confirmed.
_CHECKED_SOON, _CHECKED_LATER = 16, 256


class LastGradient:
    """Finds the last gradient by asking for groups, then for smaller groups of the latest group.

    Args:
        names: the names of all gradients, at least one.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names = list(names)
        self._among = self._names
        #: Steps for which ``guess`` is taken as the last gradient, before asking for groups.
        self.patience = 0

    @property
    def guess(self) -> str:
        return self._among[0]

    @property
    def is_found(self) -> bool:
        return len(self._among) == 1

    @property
    def groups(self) -> List[List[str]]:
        """The groups to ask for, each separately. Together they contain all gradients."""
        among = self._among
        size = -(-len(among) // _GROUPS)
        groups = [among[first : first + size] for first in range(0, len(among), size)]
        left = set(among)
        others = [name for name in self._names if name not in left]
        return [*groups, others] if others else groups

    def learn(self, times: List[int], asked_until: int) -> None:
        """Learn when the ``groups`` were ready, in nanoseconds; the questions ended at asked_until."""
        if max(times) <= asked_until + _AT_ONCE_NS:
            # All were ready already: their order is only the order of the questions.
            self.patience = _CHECKED_SOON
            return
        count = len(times) - (len(self._among) < len(self._names))
        among, others = max(times[:count]), times[count:]
        if others and others[0] > among + _AT_ONCE_NS:
            self._among = self._names
            self.patience = 0
        elif self.is_found:
            self.patience = _CHECKED_LATER
        else:
            self._among = self.groups[times.index(among)]
            self.patience = _CHECKED_SOON if self.is_found else 0

"""Make rows of iterations once the device has computed their results."""

from __future__ import annotations

from typing import Any, Callable, Deque, List, NamedTuple, Optional, Union

from ..loops.deferred_steps import DeferredSteps, EmitSteps
from ..loops.steps import Reduction, StepAssembler
from ..step_log.format import EPOCH
from .results import ResultTimes

#: An iteration's epoch, its start, the arrival of its batch, its samples, the nanoseconds that recording
#: it took, how many results it gave, and its end. A bare list: a named tuple takes training ten times as
#: long to make.
RunningIteration = List[Any]
OWN_NS, RESULTS, END = 4, 5, 6


class Interval(NamedTuple):
    """Something other than a step, between the iterations before and after it."""

    kind: str
    epoch: int
    begin: int
    end: int


class IterationStream(DeferredSteps):
    """Takes iterations and the intervals between them; a step ends when its results are ready.

    Args:
        times: when results are ready; None where iterations have none.
        single: whether there is one process, in which the end of a step is the end of its compute.
        emit_interval: receives the intervals.
    """

    waiting: Deque[Union[RunningIteration, Interval]]

    def __init__(
        self,
        times: Optional[ResultTimes],
        single: bool,
        costs: Callable[[int], None],
        emit: EmitSteps,
        emit_interval: Callable[[Interval], None],
    ) -> None:
        super().__init__(StepAssembler(times is not None, single), costs, emit)
        self._times = times
        self._single = single
        self._emit_interval = emit_interval
        self._epoch_end = 0

    def close(self) -> None:
        """Wait for the last results, and make the last rows."""
        if self._times is not None:
            self._times.settle()
        self.drain()
        self._give_up()

    def unfinished(self) -> Optional[RunningIteration]:
        """Return the first iteration without ready results."""
        waiting = list(self.waiting)
        first = waiting[0] if waiting else None
        return None if first is None or isinstance(first, Interval) else first

    def _is_ready(self, entry: Union[RunningIteration, Interval]) -> bool:
        if self._times is None or isinstance(entry, Interval):
            return True
        return bool(len(self._times.done) >= entry[RESULTS])

    def _take(self, entry: Union[RunningIteration, Interval], clock: int) -> None:
        if isinstance(entry, Interval):
            self._end_interval(entry)
            return
        epoch, begin, data, samples, own_ns, results, end = entry
        iteration = self._begin(epoch, begin, data, clock)
        assert iteration.data is not None
        iteration.samples = samples
        end = max(end, iteration.data)
        if results:
            end = max(self._done(results, end), iteration.data)
            self._done_before = end
            self._count += 1
            seen = end if self._single else None
            iteration.reduced(Reduction(self._count, seen, seen))
        self._end(iteration, end, own_ns)

    def _end_interval(self, interval: Interval) -> None:
        # The device may still compute the last step when the host continues.
        is_epoch = interval.kind == EPOCH
        begin = max(interval.begin, self._epoch_end if is_epoch else self._done_before)
        end = max(interval.end, self._done_before, begin)
        if is_epoch:
            self._epoch_end = end
        self._emit_interval(interval._replace(begin=begin, end=end))

    def _done(self, results: int, end: int) -> int:
        """Return when the last of an iteration's results was ready; its end if waiting failed."""
        assert self._times is not None
        done = [self._times.done.popleft() for _ in range(results)][-1]
        return end if done is None else done

"""Make rows of iterations once the device has computed their results."""

from __future__ import annotations

import threading
from collections import deque
from typing import Any, Callable, Deque, List, NamedTuple, Optional, Union

from ..clock import read_clocks
from ..format import EPOCH, StepRow
from ..guards import take_ready
from ..loop_steps import Iteration, Reduction, StepAssembler
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


EmitSteps = Callable[[List[StepRow]], None]
EmitInterval = Callable[[Interval], None]


class IterationStream:
    """Takes iterations and intervals, in order, and makes rows on the thread that drains.

    ``costs`` receives the nanoseconds that recording an iteration took. The host may run ahead of the
    device, and its work meanwhile costs nothing: a step starts, at the earliest, when the results of the
    previous step are ready, and ends when its own are.

    Args:
        times: when results are ready; None where iterations have none.
        single: whether there is one process, in which the end of a step is the end of its compute.
    """

    def __init__(
        self,
        times: Optional[ResultTimes],
        single: bool,
        costs: Callable[[int], None],
        emit: EmitSteps,
        emit_interval: EmitInterval,
    ) -> None:
        self._times = times
        self._single = single
        self._assembler = StepAssembler(times is not None, single)
        self._costs = costs
        self._emit = emit
        self._emit_interval = emit_interval
        #: A deque: the training thread appends while another takes, without a lock.
        self.waiting: Deque[Union[RunningIteration, Interval]] = deque()
        self._drains = threading.Lock()
        self._count = 0
        self._done_before = self._epoch_end = 0
        #: Whether there were iterations, and never any results.
        self.gave_up = False

    def drain(self) -> None:
        """Make rows of the iterations with ready results, and of the intervals between them."""
        with self._drains:
            clock = read_clocks()[1]
            for one in take_ready(self.waiting, self._is_known):
                if isinstance(one, Interval):
                    self._end_interval(one)
                else:
                    self._make_rows(one, clock)

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

    def _is_known(self, one: Union[RunningIteration, Interval]) -> bool:
        if self._times is None or isinstance(one, Interval):
            return True
        return bool(len(self._times.done) >= one[RESULTS])

    def _end_interval(self, interval: Interval) -> None:
        # The device may still compute the last step when the host goes on.
        is_epoch = interval.kind == EPOCH
        begin = max(interval.begin, self._epoch_end if is_epoch else self._done_before)
        end = max(interval.end, self._done_before, begin)
        if is_epoch:
            self._epoch_end = end
        self._emit_interval(interval._replace(begin=begin, end=end))

    def _make_rows(self, finished: RunningIteration, clock: int) -> None:
        epoch, begin, data, samples, own_ns, results, end = finished
        iteration = Iteration(epoch, max(begin, self._done_before), clock)
        iteration.data = max(data, iteration.begin)
        iteration.samples = samples
        end = max(end, iteration.data)
        if results:
            end = max(self._done(results, end), iteration.data)
            self._done_before = end
            self._count += 1
            seen = end if self._single else None
            iteration.reduced(Reduction(self._count, seen, seen))
        self._costs(own_ns)
        self._emit(self._assembler.rows(iteration, end))
        if self._assembler.lost_count:
            self._give_up()

    def _done(self, results: int, end: int) -> int:
        """Return when the last of an iteration's results was ready; its end if waiting failed."""
        assert self._times is not None
        done = [self._times.done.popleft() for _ in range(results)][-1]
        return end if done is None else done

    def _give_up(self) -> None:
        rows = self._assembler.give_up()
        self._emit(rows)
        self.gave_up = self.gave_up or bool(rows)

"""Time when the results of a compiled step are ready, without making training wait."""

from __future__ import annotations

import atexit
import queue
import threading
import time
from collections import deque
from time import monotonic_ns
from typing import Any, Callable, Deque, List, NamedTuple, Optional, Union

from ..loop_steps import (
    DeferredSteps,
    EmitCounts,
    EmitSteps,
    Reduction,
    StepAssembler,
    elements_of,
    emit_counts,
)
from ..step_log.line_format import EPOCH

# A device that takes longer for the last steps must not delay an interval or the end of training.
_PATIENCE_NS = 5_000_000_000
_PAUSE_SECONDS = 0.001
# Follows the last results in the queue.
_NO_MORE = object()

#: An iteration's epoch, its start, the arrival of its batch, its shape, the nanoseconds that recording
#: it took, how many results it gave, its end, what tells the tokens of some batches, when it gave its
#: only results (None if they were there already), and whether they were there at its end. A bare list: a
#: named tuple takes training ten times as long to make.
RunningIteration = List[Any]
OWN_NS, RESULTS, END, DISPATCHED, THERE = 4, 5, 6, 8, 9
#: Why no step of a training by several processes has the time of its dispatch.
READ_BEFORE = (
    "log.results was called once the results were there, so when the host had dispatched the step is "
    "not known"
)
SEVERAL = (
    "a step dispatches several computations, and which of them its devices waited for is not known"
)


class ResultTimes:
    """Waits for arrays, in order, on a separate thread.

    All outputs of a compiled function are ready at once, so one of them stands for the step.
    """

    def __init__(self) -> None:
        #: For each array: the monotonic time in nanoseconds when it was ready; None after an error.
        self.done: Deque[Optional[int]] = deque()
        #: The first error of waiting; None without one.
        self.error: Optional[Exception] = None
        self._given = self._reported = 0
        self._stopped = False
        self._before: Any = None
        self._waiting: "queue.SimpleQueue[Any]" = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._wait, name="stallscope-jax", daemon=True)

    def start(self) -> None:
        self._thread.start()
        atexit.register(self._join)

    def stop(self) -> None:
        """End the thread after the array that it waits for."""
        self._stopped = True
        self._waiting.put(_NO_MORE)
        if self._reported == self._given:
            atexit.unregister(self._join)

    def _join(self) -> None:
        """Wait for the thread: Python aborts if it ends while a thread is inside JAX.

        JAX itself waits for its devices when Python ends, so this takes no longer.
        """
        self._waiting.put(_NO_MORE)
        self._thread.join()

    def add(self, array: Any) -> bool:
        """Note an array that a step computes; None stands for a step without one.

        Returns whether it is not there yet.

        Raises:
            ValueError: if the step after an earlier array has deleted it.
            Exception: whatever waiting for an earlier array has raised.
        """
        if _is_deleted(self._before):
            # Its time may have been missed.
            raise _donated()
        self._before = array
        is_done = array is None or _is_ready(array)
        if is_done and array is not None and self._reported == self._given:
            # Already ready: no thread has to wake up.
            self.done.append(monotonic_ns())
            self._reported += 1
        else:
            self._waiting.put(array)
        self._given += 1
        if self.error is not None:
            raise self.error
        return not is_done

    def are_there(self) -> bool:
        """Return whether the latest results are known to be there already."""
        array = self._before
        try:
            return array is not None and not _is_deleted(array) and _is_ready(array)
        except Exception:  # no error may reach training
            return False

    def settle(self) -> None:
        """Wait until all arrays are ready, for five seconds at most."""
        deadline = monotonic_ns() + _PATIENCE_NS
        while self._reported < self._given and monotonic_ns() < deadline:
            time.sleep(_PAUSE_SECONDS)

    def _wait(self) -> None:
        while True:
            array = self._waiting.get()
            if array is _NO_MORE or self._stopped:
                return
            done = None
            try:
                if array is not None:
                    array.block_until_ready()
                    done = monotonic_ns()
            except Exception as error:  # raised on the training thread, which ends the recording
                self.error = self.error or _plainer(error, array)
            self.done.append(done)
            self._reported += 1


def _is_ready(array: Any) -> bool:
    """Return whether the array is known to be computed already."""
    # Old versions lack the method.
    is_ready = getattr(array, "is_ready", None)
    return is_ready is not None and bool(is_ready())


def _plainer(error: Exception, array: Any) -> Exception:
    return _donated() if _is_deleted(array) else error


def _is_deleted(array: Any) -> bool:
    is_deleted = getattr(array, "is_deleted", None)
    return is_deleted is not None and bool(is_deleted())


def _donated() -> Exception:
    return ValueError(
        "the next step deletes these results (donate_argnums); give others, such as the loss"
    )


# -- Make rows of iterations once the device has computed their results ---------------------------


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
        count: receives the tokens and the padding of some batches, with the start of the iteration and
            whether it ends a step.
        samples: the user's number of samples per batch; None if shapes tell it.
    """

    waiting: Deque[Union[RunningIteration, Interval]]

    def __init__(
        self,
        times: Optional[ResultTimes],
        single: bool,
        costs: Callable[[int], None],
        emit: EmitSteps,
        emit_interval: Callable[[Interval], None],
        count: EmitCounts,
        samples: Optional[int] = None,
    ) -> None:
        super().__init__(StepAssembler(times is not None, single), costs, emit)
        self._times = times
        self._single = single
        self._samples = samples
        self._emit_interval = emit_interval
        self._emit_counts = count
        self._epoch_end = 0
        # Iterations since the last one with results.
        self._accumulated = 0
        # Whether any step has the time of its dispatch, and why the latest one without it has none.
        self._saw_dispatch = False
        self._why_unseen: Optional[str] = None
        # Steps of the iterations that were taken.
        self._steps = 0

    def steps(self) -> int:
        """Return the number of steps so far, with those that the device has not finished."""
        with self._drains:
            waiting = [entry for entry in self.waiting if not isinstance(entry, Interval)]
            return self._steps + sum(map(self._makes_step, waiting))

    @property
    def why_unseen(self) -> Optional[str]:
        """Return why no step of several processes has the time of its dispatch; None otherwise."""
        return None if self._saw_dispatch else self._why_unseen

    def _makes_step(self, iteration: RunningIteration) -> bool:
        return self._times is None or iteration[RESULTS] > 0

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
        self._steps += self._makes_step(entry)
        epoch, begin, data, shape, own_ns, results, end, padded, dispatched, are_done = entry
        iteration = self._begin(epoch, begin, data, clock)
        assert iteration.data is not None
        iteration.samples = self._samples or (int(shape[0]) if shape else None)
        iteration.elements = elements_of(shape)
        end = max(end, iteration.data)
        if results:
            done = self._done(results, end)
            # The thread that waits for results may have waited for Python's lock since then.
            end = max(min(done, end) if are_done else done, iteration.data)
            self._done_before = end
            self._count += 1
            iteration.reduced(self._reduction(iteration.data, end, results, dispatched))
        else:
            self._accumulated += 1
        began, ends_step = iteration.begin, self._end(iteration, end, own_ns)
        if padded is not None:
            emit_counts(padded, began, ends_step, self._emit_counts)

    def _reduction(self, data: int, end: int, results: int, dispatched: Optional[int]) -> Reduction:
        """Return when the step was ready: in one process its end, in several the end of host work.

        Devices wait for the host until it has dispatched the step, unless they are still busy. If a step
        dispatches several computations, they may be busy with the earlier ones.
        """
        accumulated, self._accumulated = self._accumulated, 0
        if self._single:
            return Reduction(self._count, end, end)
        if dispatched is None or accumulated:
            several = accumulated or results > 1
            self._why_unseen = SEVERAL if several else READ_BEFORE
            return Reduction(self._count, None, None)
        self._saw_dispatch = True
        return Reduction(self._count, min(max(dispatched, data), end), end)

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

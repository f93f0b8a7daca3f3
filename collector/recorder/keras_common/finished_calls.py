"""Make rows of finished calls of the train function, and time the model's saving."""

from __future__ import annotations

import functools
import inspect
import threading
from collections import deque
from time import monotonic_ns
from typing import Any, Callable, Deque, List, NamedTuple, Optional, Sequence, Tuple

from ..guards import JUMP_NS, Cost, patch, read_clocks
from ..loop_steps import COUNTED, IterationSummer
from ..step_log.line_format import StepRow, TokensRow

#: The most calls that wait for the flushing thread; beyond that the training thread makes rows.
MOST_WAITING = 2048
#: When the timer was entered, when the call started and ended, when the recorder was done with the call
#: before it (None before the first), all in monotonic nanoseconds, and further information about it (see
#: ``timed``). A bare tuple: a named one takes training ten times as long to make.
FinishedCall = Tuple[int, int, int, Optional[int], Any]
#: The time between two checks on the training thread.
CHECK_INTERVAL_NS = 200_000_000


class GraphStep(NamedTuple):
    """The graph's timestamps of one step: wall time in nanoseconds, None where unwritten."""

    data: Optional[int]
    ready: Optional[int]
    reduced: Optional[int]
    done: Optional[int]
    samples: Optional[int]
    elements: Optional[int] = None
    #: The tokens in the step's batch, and its places that are padding.
    tokens: Optional[int] = None
    padding: Optional[int] = None


#: A step that was overwritten before it was read.
LOST = GraphStep(None, None, None, None, None)


def graph_step(row: Sequence[float]) -> GraphStep:
    """Convert the graph's row: data, samples, elements of each, tokens, places, ready, reduced, done.

    Times are in seconds, and one that is older than the data was left by an earlier step. Negative
    numbers are unknown.
    """
    data, samples, each, tokens, places, *timestamps = row
    at, ready, reduced, done = (_nanoseconds(timestamp, data) for timestamp in (data, *timestamps))
    counted = int(samples) if samples >= 0 else None
    elements = None if counted is None or each < 0 else round(counted * each)
    if not 0 <= tokens <= places:
        return GraphStep(at, ready, reduced, done, counted, elements)
    padded = int(tokens), int(places - tokens)
    return GraphStep(at, ready, reduced, done, counted, elements, *padded)


def _nanoseconds(seconds: float, began: float) -> Optional[int]:
    # tf.timestamp has microsecond resolution; rounding removes the noise of the float.
    return round(seconds * 1e6) * 1000 if seconds >= began > 0 else None


class Call(NamedTuple):
    """One call of the train function; it runs one step unless ``steps_per_execution`` is larger."""

    epoch: Optional[int]
    #: Monotonic nanoseconds.
    begin: int
    #: None where the call ended because the data did.
    end: Optional[int]
    #: Wall minus monotonic clock at the start and at the end.
    clock_begin: int
    clock_end: int
    #: Steps that the call was to run.
    steps: int
    #: Further information about the call (see ``timed``).
    seen: Any = None
    #: Nanoseconds that recording the previous call took; None where unknown.
    own_ns: Optional[int] = None


class CallAssembler(IterationSummer):
    """Makes rows of calls and graph steps; ``reduces``: several ranks reduce gradients."""

    def __init__(
        self, next_step: int, passes_per_step: int, reduces: bool, iterations_done: int = 0
    ) -> None:
        super().__init__(next_step, passes_per_step, iterations_done)
        self._reduces = reduces
        # The tokens in some of the batches whose rows have been made.
        self._counted: List[TokensRow] = []

    def take_counted(self) -> List[TokensRow]:
        """Return the tokens that were counted since the last call."""
        counted, self._counted = self._counted, []
        return counted

    def host_rows(self, calls: List[Call]) -> List[StepRow]:
        """Make rows of calls without timestamps: only start and end are known.

        The steps inside one call cannot be separated: they are one row, and ``micro`` counts them.
        """
        iterations = []
        for call in calls:
            if call.end is not None:
                begin, end, clock = call.begin, call.end, call.clock_begin
                iterations.append(
                    StepRow(0, call.epoch, begin, None, None, None, end, call.steps, None, clock)
                )
        return self._steps(iterations)

    def graph_rows(self, call: Call, steps: List[GraphStep]) -> List[StepRow]:
        """Make rows of one call from the graph's timestamps of its steps."""
        jumped = abs(call.clock_end - call.clock_begin) > JUMP_NS
        if jumped and len(steps) > 1:
            # The inner steps cannot be separated: one row, and the numbers of the others are skipped.
            self.next_step += (len(steps) - 1) // self._passes
            return self.host_rows([call._replace(steps=len(steps))])
        rows: List[StepRow] = []
        begin = call.begin
        for index, step in enumerate(steps):
            last = index == len(steps) - 1
            end = call.end if last and call.end is not None else _on_monotonic(step.done, call)
            if end is not None:
                number = self.next_step
                rows += self.rows(self._iteration(call, step, begin, end, jumped))
                if step.tokens is not None and step.padding is not None and not number % COUNTED:
                    self._counted.append(TokensRow(number, begin, step.tokens, step.padding))
                begin = end
            elif step == LOST:
                self.next_step += 1
            # Otherwise the call was aborted in this step.
        return rows

    def _iteration(
        self, call: Call, step: GraphStep, begin: int, end: int, jumped: bool
    ) -> StepRow:
        data = ready = reduced = None
        if not jumped:
            data = _within(_on_monotonic(step.data, call), begin, end)
            ready = _within(_on_monotonic(step.ready, call), data or begin, end)
            reduced = _within(_on_monotonic(step.reduced, call), data or begin, end)
            if ready is not None and reduced is not None:
                # A timestamp can only be late, and gradients are ready before they are reduced.
                ready = min(ready, reduced)
        if not self._reduces:
            # One process without Horovod: ready gradients need no reduction.
            reduced = ready
        return StepRow(
            0,
            call.epoch,
            begin,
            data,
            ready,
            reduced,
            end,
            1,
            step.samples,
            call.clock_begin,
            step.elements,
        )

    def _steps(self, iterations: List[StepRow]) -> List[StepRow]:
        return [row for iteration in iterations for row in self.rows(iteration)]


def _on_monotonic(wall: Optional[int], call: Call) -> Optional[int]:
    return None if wall is None else wall - call.clock_begin


def _within(timestamp: Optional[int], low: int, high: int) -> Optional[int]:
    """Return the timestamp if it lies in its step, within its resolution; otherwise None."""
    if timestamp is None or timestamp < low - RESOLUTION_NS or timestamp > high + RESOLUTION_NS:
        return None
    return min(max(timestamp, low), high)


#: Half a microsecond from rounding tf.timestamp, and the error of reading two clocks.
RESOLUTION_NS = 100_000

# -- Pass finished calls of the train function to the thread that makes rows ----------------------


class FinishedCalls:
    """The training thread adds calls; one thread at a time takes them out and makes rows."""

    # Slots, not a dict: the data of every call lies together in memory.
    __slots__ = (
        "_before",
        "_changes",
        "_clock",
        "_cost",
        "_end_without_recorder",
        "_read_at",
        "check_at",
        "checks",
        "epoch",
        "recorded_at",
        "steps",
        "waiting",
    )

    def __init__(self, cost: Cost) -> None:
        #: A deque: one thread appends a FinishedCall while another takes, without a lock.
        self.waiting: Deque[FinishedCall] = deque()
        #: When the recording next checks the training around a call. Comparing with the time, which is
        #: known there, costs training less than counting calls.
        self.check_at = 0
        #: Calls around which the recording has checked.
        self.checks = 0
        #: When the recorder was done with the latest call.
        self.recorded_at: Optional[int] = None
        #: The current epoch, and the steps that the next call will run, as far as the host knows.
        self.epoch: Optional[int] = None
        self.steps = 1
        # Since when calls belong to an epoch and run a number of steps.
        self._changes: Deque[Tuple[int, Optional[int], int]] = deque([(0, None, 1)])
        # When the latest call taken would have ended without the recorder.
        self._end_without_recorder: Optional[int] = None
        self._cost = cost
        # Wall minus monotonic clock as last read, the value before that, and when it was read.
        self._read_at, self._clock = read_clocks()
        self._before = self._clock

    def __len__(self) -> int:
        return len(self.waiting)

    @property
    def steps_waiting(self) -> int:
        """Return the number of steps of the waiting calls."""
        changes = list(self._changes)
        begins = [begin for _, begin, _, _, _ in list(self.waiting)]
        return sum(
            next(steps for since, _, steps in reversed(changes) if since <= begin)
            for begin in begins
        )

    def change(self, epoch: Optional[int], steps: Optional[int] = None) -> None:
        """Set the epoch, and the number of steps if given, of calls that start from here on."""
        steps = self.steps if steps is None else steps
        if (epoch, steps) != (self.epoch, self.steps):
            self.epoch, self.steps = epoch, steps
            self._changes.append((monotonic_ns(), epoch, steps))

    def schedule_check(self, every_call: bool) -> None:
        """From here on, check the training around every call, or only now and then."""
        self.check_at = 0 if every_call else monotonic_ns() + CHECK_INTERVAL_NS

    def take(self, count: Optional[int] = None) -> List[Call]:
        """Take the first ``count`` finished calls, or all of them."""
        count = len(self.waiting) if count is None else count
        finished = [self.waiting.popleft() for _ in range(count)]
        if not finished:
            return []
        before, read_at, at_last, clock = self._read_clock()
        calls, changes = [], self._changes
        for entered, begin, end, recorded_at, seen in finished:
            while len(changes) > 1 and changes[1][0] <= begin:
                changes.popleft()
            _, epoch, steps = changes[0]
            began_with = before if begin < read_at else at_last
            own_ns = self._own_ns(recorded_at)
            calls.append(Call(epoch, begin, end, began_with, clock, steps, seen, own_ns))
            self._end_without_recorder = end - begin + entered
        return calls

    def count(self, own_ns: Optional[int]) -> None:
        """Count the cost of recording a call: the next call's ``own_ns`` and any other cost."""
        if own_ns is not None:
            self._cost.count_iteration(own_ns)

    def call_aborted(self, begin: int) -> Call:
        """Return the call that an exception has just ended; earlier calls are already taken."""
        before, read_at, at_last, clock = self._read_clock()
        return Call(
            self.epoch, begin, None, before if begin < read_at else at_last, clock, self.steps
        )

    def close(self) -> None:
        """End the calls; the cost of the last one is unknown where some were not taken."""
        if not self.waiting:
            self.count(self._own_ns(self.recorded_at))
        self._end_without_recorder = None

    def _own_ns(self, recorded_at: Optional[int]) -> Optional[int]:
        """Return the cost of recording the call that was taken last."""
        end = self._end_without_recorder
        return None if recorded_at is None or end is None else recorded_at - end

    def _read_clock(self) -> Tuple[int, int, int, int]:
        """Return the clock before last, the time of the last reading, the clock then, and the clock now.

        The clock is not read in every call, so the call in which someone set it is unknown. A call
        that ran during the last reading started with the clock of the reading before.
        """
        before, read_at, at_last = self._before, self._read_at, self._clock
        self._before = at_last
        self._read_at, self._clock = read_clocks()
        return before, read_at, at_last, self._clock


# -- functions of the model ------------------------------------------------------------------------


def is_made_by(model_class: Any, train_function: Any) -> bool:
    """Return whether the class itself made the train function, without an override.

    Keras' own function returns the train step's logs unchanged.
    """
    makes = code_of(inspect.unwrap(model_class.make_train_function))
    return bool(getattr(code_of(train_function), "co_filename", None) == makes.co_filename)


def code_of(function: Any) -> Any:
    """Return a value that identifies a function's definition."""
    return getattr(getattr(function, "python_function", function), "__code__", function)


class TimedSaving:
    """Time the model's methods for saving, called by the user or by a callback."""

    def __init__(
        self, model: Any, started: Callable[[], None], record: Callable[[int, int], None]
    ) -> None:
        self._model = model
        self._started = started
        self._record = record
        # A thread may save while another one does.
        self._saving = threading.local()
        self._restore: List[Callable[[], None]] = []

    def install(self) -> None:
        for name in ("save", "save_weights"):
            if name not in vars(self._model):
                timed = self._timed(getattr(self._model, name))
                self._restore.append(patch(self._model, name, timed))

    def remove(self) -> None:
        while self._restore:
            self._restore.pop()()

    def _timed(self, save: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(save)
        def timed(*args: Any, **kwargs: Any) -> Any:
            begin, depth = monotonic_ns(), getattr(self._saving, "depth", 0)
            if depth == 0:
                self._started()
            self._saving.depth = depth + 1
            try:
                return save(*args, **kwargs)
            finally:
                self._saving.depth = depth
                if depth == 0:
                    self._record(begin, monotonic_ns())

        return timed

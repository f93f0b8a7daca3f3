"""Join the host's times of calls and the graph's timestamps into rows."""

from __future__ import annotations

from typing import Any, List, NamedTuple, Optional, Sequence

from ..clock import JUMP_NS
from ..loops.iterations import IterationSummer
from ..step_log.format import StepRow


class GraphStep(NamedTuple):
    """The graph's timestamps of one step: wall time in nanoseconds, None where unwritten."""

    data: Optional[int]
    ready: Optional[int]
    reduced: Optional[int]
    done: Optional[int]
    samples: Optional[int]


#: A step that was overwritten before it was read.
LOST = GraphStep(None, None, None, None, None)


def graph_step(row: Sequence[float]) -> GraphStep:
    """Convert the graph's row: data, samples, ready, reduced and done, with times in seconds.

    A time older than the data was left by an earlier step. Negative samples mean an unknown number.
    """
    data, samples, *timestamps = row
    at, ready, reduced, done = (_nanoseconds(timestamp, data) for timestamp in (data, *timestamps))
    return GraphStep(at, ready, reduced, done, int(samples) if samples >= 0 else None)


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
        iterations: List[StepRow] = []
        begin = call.begin
        for index, step in enumerate(steps):
            last = index == len(steps) - 1
            end = call.end if last and call.end is not None else _on_monotonic(step.done, call)
            if end is not None:
                iterations.append(self._iteration(call, step, begin, end, jumped))
                begin = end
            elif step == LOST:
                self.next_step += 1
            # Otherwise the call was aborted in this step.
        return self._steps(iterations)

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
            0, call.epoch, begin, data, ready, reduced, end, 1, step.samples, call.clock_begin
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

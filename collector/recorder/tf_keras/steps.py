"""Host times of calls and timestamps of the graph, joined into rows of steps."""

from __future__ import annotations

from typing import Any, List, NamedTuple, Optional, Sequence

from ..clock import JUMP_NS
from ..format import StepRow
from ..turns import sum_of


class GraphStep(NamedTuple):
    """Timestamps of one step as the graph wrote them: wall time in nanoseconds, None where unwritten."""

    data: Optional[int]
    ready: Optional[int]
    reduced: Optional[int]
    done: Optional[int]
    samples: Optional[int]


#: A step that was overwritten before anybody read it.
LOST = GraphStep(None, None, None, None, None)


def graph_step(row: Sequence[float]) -> GraphStep:
    """A step as the graph has it: data, samples, ready, reduced and done, the times in seconds.

    What is older than the data was left by an earlier step. Fewer than no samples are unknown ones.
    """
    data, samples, *stamps = row
    at, ready, reduced, done = (_nanoseconds(one, data) for one in (data, *stamps))
    return GraphStep(at, ready, reduced, done, int(samples) if samples >= 0 else None)


def _nanoseconds(seconds: float, began: float) -> Optional[int]:
    # tf.timestamp has microseconds; the rounding takes the noise of the float away again.
    return round(seconds * 1e6) * 1000 if seconds >= began > 0 else None


class Call(NamedTuple):
    """One call of the train function; it runs one step unless ``steps_per_execution`` says more."""

    epoch: Optional[int]
    #: Monotonic nanoseconds.
    begin: int
    #: None where the call ended because the data did.
    end: Optional[int]
    #: Wall minus monotonic clock at begin and at end.
    clock_begin: int
    clock_end: int
    #: Steps that the call was to run.
    steps: int
    #: What was seen of it besides (see ``timed``).
    seen: Any = None
    #: Nanoseconds that recording the call before it took; None where it is not known.
    own_ns: Optional[int] = None


class StepAssembler:
    """Turns calls and graph steps into rows; keeps what a step needs across turns.

    ``next_step`` is the number of the next row, ``passes_per_step`` how many turns make a step,
    ``turns_done`` how many of those the optimizer had already done before the first row.
    """

    def __init__(
        self, next_step: int, passes_per_step: int, reduces: bool, turns_done: int = 0
    ) -> None:
        self.next_step = next_step
        self._passes = passes_per_step
        self._reduces = reduces
        self._turns: List[StepRow] = []
        self._missing = passes_per_step - turns_done % passes_per_step

    def host_rows(self, calls: List[Call]) -> List[StepRow]:
        """Rows of calls without any stamps: only begin and end are known.

        The steps inside one call cannot be distinguished: they are one row, ``micro`` says how many.
        """
        turns = []
        for call in calls:
            if call.end is not None:
                begin, end, clock = call.begin, call.end, call.clock_begin
                turns.append(
                    StepRow(0, call.epoch, begin, None, None, None, end, call.steps, None, clock)
                )
        return self._summed(turns)

    def stamped_rows(self, call: Call, steps: List[GraphStep]) -> List[StepRow]:
        """Rows of one call whose steps the graph stamped."""
        jumped = abs(call.clock_end - call.clock_begin) > JUMP_NS
        if jumped and len(steps) > 1:
            # Nothing tells the inner steps apart: one row, and the numbers of the others are left out.
            self.next_step += (len(steps) - 1) // self._passes
            return self.host_rows([call._replace(steps=len(steps))])
        turns: List[StepRow] = []
        begin = call.begin
        for index, step in enumerate(steps):
            last = index == len(steps) - 1
            end = call.end if last and call.end is not None else _on_monotonic(step.done, call)
            if end is not None:
                turns.append(self._turn(call, step, begin, end, jumped))
                begin = end
            elif step == LOST:
                self.next_step += 1
            # Otherwise the step was begun and never done: the call was aborted in it.
        return self._summed(turns)

    def _turn(self, call: Call, step: GraphStep, begin: int, end: int, jumped: bool) -> StepRow:
        data = ready = reduced = None
        if not jumped:
            data = _within(_on_monotonic(step.data, call), begin, end)
            ready = _within(_on_monotonic(step.ready, call), data or begin, end)
            reduced = _within(_on_monotonic(step.reduced, call), data or begin, end)
            if ready is not None and reduced is not None:
                # A timestamp can only come late, and gradients are ready before they are reduced.
                ready = min(ready, reduced)
        if not self._reduces:
            # One process without Horovod: what is ready needs no reducing.
            reduced = ready
        return StepRow(
            0, call.epoch, begin, data, ready, reduced, end, 1, step.samples, call.clock_begin
        )

    def _summed(self, turns: List[StepRow]) -> List[StepRow]:
        """Turns without a reduction are summed into the step that ends with one."""
        rows = []
        for turn in turns:
            self._turns.append(turn)
            if len(self._turns) >= self._missing:
                rows.append(sum_of(self._turns)._replace(step=self.next_step))
                self._turns = []
                self._missing = self._passes
                self.next_step += 1
        return rows


def _on_monotonic(wall: Optional[int], call: Call) -> Optional[int]:
    return None if wall is None else wall - call.clock_begin


def _within(stamp: Optional[int], low: int, high: int) -> Optional[int]:
    """The timestamp where it lies in its step, give or take its resolution; otherwise it is not one."""
    if stamp is None or stamp < low - RESOLUTION_NS or stamp > high + RESOLUTION_NS:
        return None
    return min(max(stamp, low), high)


#: Half of a microsecond from rounding tf.timestamp, and what reading two clocks can be off.
RESOLUTION_NS = 100_000

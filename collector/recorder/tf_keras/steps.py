"""Host times of calls and stamps of the graph, joined into rows of steps."""

from __future__ import annotations

from typing import List, NamedTuple, Optional

from ..clock import JUMP_NS
from ..format import StepRow
from .ring import GraphStep


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
    #: Steps that the call ran.
    count: int


class StepAssembler:
    """Turns calls and graph steps into rows; keeps what a step needs across turns."""

    def __init__(self, first_step: int, passes_per_step: int, reduces: bool) -> None:
        self._next = first_step
        self._passes = passes_per_step
        self._reduces = reduces
        self._turns: List[StepRow] = []

    def host_rows(self, calls: List[Call]) -> List[StepRow]:
        """Rows of calls without any stamps: only begin and end are known.

        The steps inside one call cannot be told apart: they are one row, ``micro`` says how many.
        """
        rows = []
        for call in calls:
            if call.end is not None:
                begin, end, clock = call.begin, call.end, call.clock_begin
                rows.append(
                    StepRow(0, call.epoch, begin, None, None, None, end, call.count, None, clock)
                )
        return self._summed(rows)

    def stamped_rows(self, call: Call, steps: List[GraphStep]) -> List[StepRow]:
        """Rows of one call whose steps the graph stamped."""
        turns: List[StepRow] = []
        begin = call.begin
        jumped = abs(call.clock_end - call.clock_begin) > JUMP_NS
        for index, step in enumerate(steps):
            last = index == len(steps) - 1
            done = None if jumped else _on_monotonic(step.done, call)
            end = call.end if last and call.end is not None else done
            if end is None:
                # Inner steps whose end nobody stamped cannot be told apart.
                continue
            turns.append(self._turn(call, step, begin, end, jumped))
            begin = end
        return self._summed(turns)

    def _turn(self, call: Call, step: GraphStep, begin: int, end: int, jumped: bool) -> StepRow:
        data = ready = reduced = None
        if not jumped:
            data = _within(_on_monotonic(step.data, call), begin, end)
            ready = _within(_on_monotonic(step.ready, call), data or begin, end)
            reduced = _within(_on_monotonic(step.reduced, call), ready or begin, end)
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
            if len(self._turns) >= self._passes:
                rows.append(self._sum(self._turns)._replace(step=self._next))
                self._turns = []
                self._next += 1
        return rows

    @staticmethod
    def _sum(turns: List[StepRow]) -> StepRow:
        first, last = turns[0], turns[-1]
        inputs = [None if turn.data is None else turn.data - turn.begin for turn in turns]
        samples = [turn.samples for turn in turns]
        return last._replace(
            begin=first.begin,
            data=None if None in inputs else first.begin + sum(filter(None, inputs)),
            micro=sum(turn.micro for turn in turns),
            samples=None if None in samples else sum(filter(None, samples)),
            clock=first.clock,
        )


def _on_monotonic(wall: Optional[int], call: Call) -> Optional[int]:
    return None if wall is None else wall - call.clock_begin


def _within(stamp: Optional[int], low: int, high: int) -> Optional[int]:
    """The stamp where it lies in its step, give or take its resolution; otherwise it is not one."""
    if stamp is None or stamp < low - _RESOLUTION_NS or stamp > high + _RESOLUTION_NS:
        return None
    return min(max(stamp, low), high)


# Half of a microsecond from rounding tf.timestamp, and what reading two clocks can be off.
_RESOLUTION_NS = 100_000

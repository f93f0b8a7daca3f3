"""Calls of the train function and what is known of them, joined into rows of steps."""

from __future__ import annotations

from typing import List, NamedTuple, Optional

from ..format import StepRow
from ..tf_keras.steps import Call
from ..turns import sum_of
from .batches import Fetch, first_of


class Times(NamedTuple):
    """A call's own times in monotonic nanoseconds; ``data`` is None if the arrival was not seen."""

    begin: int
    data: Optional[int]


def times_of(call: Call, fetches: List[Fetch]) -> Times:
    """When a call of one step began to wait for its batch, and had it.

    Where Keras fetches before it calls the train function, callbacks come in between: the step is
    told as if they had come before it, where everything else between steps is.
    """
    if len(fetches) != 1:
        return Times(call.begin, None)
    [(asked, there, _)] = fetches
    if asked < call.begin:
        return Times(call.begin - (there - asked), call.begin)
    return Times(call.begin, there)


class Steps:
    """Numbers turns, and sums those that only accumulate gradients into the step that applies them.

    Args:
        next_step: the number of the next row.
        passes: turns that make a step.
        turns_done: how many of those the optimizer had already done before the first row.
    """

    def __init__(self, next_step: int, passes: int, turns_done: int) -> None:
        self._next = next_step
        self._passes = passes
        self._missing = passes - turns_done % passes
        self._turns: List[StepRow] = []

    def rows(self, turn: StepRow) -> List[StepRow]:
        self._turns.append(turn)
        if len(self._turns) < self._missing:
            return []
        row = sum_of(self._turns)._replace(step=self._next)
        self._turns = []
        self._missing = self._passes
        self._next += 1
        return [row]


def samples_of(fetches: List[Fetch]) -> Optional[int]:
    """Samples of all batches of a call; None where one does not tell, or none was seen."""
    found = [first_of(shape) for _, _, shape in fetches]
    known = [samples for samples in found if samples is not None]
    return sum(known) if known and len(known) == len(fetches) else None

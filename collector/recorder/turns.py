"""Turns of a training loop and the steps they make."""

from __future__ import annotations

from typing import List, Optional

from .format import StepRow


def sum_of(turns: List[StepRow]) -> StepRow:
    """The one step of several turns, of which only the last one ended with a reduction.

    What the turns waited for data adds up, and so do their samples; the rest is the last turn's.
    """
    first, last = turns[0], turns[-1]
    fetched = _total([None if turn.data is None else turn.data - turn.begin for turn in turns])
    return last._replace(
        begin=first.begin,
        data=None if fetched is None else first.begin + fetched,
        micro=sum(turn.micro for turn in turns),
        samples=_total([turn.samples for turn in turns]),
        clock=first.clock,
    )


def _total(values: List[Optional[int]]) -> Optional[int]:
    """The sum; None where one of them is not known."""
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None

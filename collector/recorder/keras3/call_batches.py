"""Join calls of the train function with the batches that they took."""

from __future__ import annotations

from typing import List, NamedTuple, Optional

from ..keras_common.steps import Call
from .batches import Fetch, first_of


class Times(NamedTuple):
    """A call's times in monotonic nanoseconds; ``data`` is None if the arrival was not seen."""

    begin: int
    data: Optional[int]


def times_of(call: Call, fetches: List[Fetch]) -> Times:
    """Return when a call of one step began to wait for its batch, and when the batch arrived.

    Where Keras fetches before it calls the train function, callbacks run in between. Their time is
    moved before the fetch, with everything else between steps.
    """
    if len(fetches) != 1:
        return Times(call.begin, None)
    [(asked, there, _)] = fetches
    if asked < call.begin:
        return Times(call.begin - (there - asked), call.begin)
    return Times(call.begin, there)


def samples_of(fetches: List[Fetch]) -> Optional[int]:
    """Return the samples of all batches of a call; None where one is unknown or none was seen."""
    found = [first_of(shape) for _, _, shape in fetches]
    known = [samples for samples in found if samples is not None]
    return sum(known) if known and len(known) == len(fetches) else None

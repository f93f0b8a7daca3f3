"""Join iterations of the user's loop and their reductions into rows."""

from __future__ import annotations

from typing import Any, List, NamedTuple, Optional, Sequence, Tuple

from ..step_log.format import StepRow
from .iterations import sum_iterations

# More iterations without any reduction are not gradient accumulation.
_MOST_ITERATIONS = 1024


class Reduction(NamedTuple):
    """One reduction of gradients, in monotonic nanoseconds; None was not measured."""

    #: Identifies its cause: two reductions with the same cause are one.
    cause: Optional[int]
    ready: Optional[int]
    reduced: Optional[int]
    #: Timestamps of an asynchronous device, read later.
    device_ready: Any = None
    device_reduced: Any = None
    #: Nanoseconds of the step before ``ready`` that this rank spent in collectives.
    waited: int = 0
    #: The same on an asynchronous device: timestamps before and after each collective.
    device_waits: Tuple[Tuple[Any, Any], ...] = ()


class Iteration:
    """One iteration of the loop, while it runs."""

    __slots__ = (
        "begin",
        "clock",
        "data",
        "device_begin",
        "device_data",
        "epoch",
        "micro",
        "reductions",
        "samples",
        "shape",
    )

    def __init__(self, epoch: int, begin: int, clock: int = 0) -> None:
        self.epoch = epoch
        self.begin = begin
        #: Wall minus monotonic clock, as of a recent reading.
        self.clock = clock
        self.data: Optional[int] = None
        self.samples: Optional[int] = None
        #: The shape of the batch, from which samples are counted later.
        self.shape: Optional[Sequence[int]] = None
        self.reductions: List[Reduction] = []
        #: Batches that it fetches before it computes.
        self.micro = 1
        #: As in Reduction.
        self.device_begin: Any = None
        self.device_data: Any = None

    def reduced(self, reduction: Reduction) -> None:
        """Add a reduction; it replaces the previous one if both have the same cause."""
        if self.reductions and self.reductions[-1].cause == reduction.cause:
            self.reductions.pop()
        self.reductions.append(reduction)


class StepAssembler:
    """Makes rows of iterations, and keeps iterations until their step is complete.

    Args:
        counts: whether reductions are seen; otherwise every iteration is a step.
        single: whether there is one rank, with which ready gradients need no reduction.
    """

    def __init__(self, counts: bool, single: bool) -> None:
        self._counts = counts
        self._single = single
        self._iterations: List[StepRow] = []
        self._any_reduction = False

    @property
    def lost_count(self) -> bool:
        """Return whether iterations pile up without any reduction so far."""
        return (
            self._counts and not self._any_reduction and len(self._iterations) >= _MOST_ITERATIONS
        )

    def rows(self, iteration: Iteration, end: int, ready: Optional[int] = None) -> List[StepRow]:
        """Make the rows of a finished iteration: one for each of its reductions.

        The rows have no numbers yet. ``ready`` is the time of the last gradient, for an iteration
        whose reductions are not seen.
        """
        if not self._counts:
            return [self._row(iteration, Reduction(None, ready, None), end)]
        if not iteration.reductions:
            self._iterations.append(self._row(iteration, Reduction(None, None, None), end))
            return []
        self._any_reduction = True
        rows = []
        last = iteration.reductions[-1]
        for reduction in iteration.reductions:
            # Several reductions in one iteration: the time between them belongs to the later one.
            row_end = end if reduction is last else reduction.reduced or end
            row = self._row(iteration, reduction, row_end)
            summed = sum_iterations([*self._iterations, row]) if self._iterations else row
            rows.append(_without_waits(summed, reduction.waited) if reduction.waited else summed)
            self._iterations.clear()
            iteration.begin = iteration.data = row.end
            iteration.micro = 1
            iteration.samples = None if iteration.samples is None else 0
        return rows

    def give_up(self) -> List[StepRow]:
        """Return the rows of the remaining iterations if there never was a reduction.

        From here on every iteration is a step. Iterations after the last reduction make no step.
        """
        if self._any_reduction or not self._counts:
            return []
        self._counts = False
        rows, self._iterations = self._iterations, []
        return rows

    def _row(self, iteration: Iteration, reduction: Reduction, end: int) -> StepRow:
        ready = _within(reduction.ready, iteration.data, end)
        reduced = (
            ready if self._single else _within(reduction.reduced, ready or iteration.data, end)
        )
        return StepRow(
            0,
            iteration.epoch,
            iteration.begin,
            iteration.data,
            ready,
            reduced,
            end,
            iteration.micro,
            iteration.samples,
            iteration.clock,
        )


def _without_waits(row: StepRow, waited: int) -> StepRow:
    """Move the time in collectives to after the last gradient: it is waiting, not compute."""
    if row.ready is None:
        return row
    return row._replace(ready=max(row.ready - waited, row.data or row.begin))


def _within(timestamp: Optional[int], low: Optional[int], high: int) -> Optional[int]:
    """Return the timestamp if it lies in its iteration; otherwise None."""
    return timestamp if timestamp is not None and (low or 0) <= timestamp <= high else None

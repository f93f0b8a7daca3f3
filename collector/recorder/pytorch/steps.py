"""Turns of the user's loop and the reductions in them, joined into rows of steps."""

from __future__ import annotations

from typing import Any, List, NamedTuple, Optional, Sequence

from ..format import StepRow
from ..turns import sum_of

# So many turns without any reduction are no accumulation of gradients.
_MOST_TURNS = 1024


class Reduction(NamedTuple):
    """One reduction of gradients, in monotonic nanoseconds; what was not measured is None."""

    #: What brought it about: two with the same cause are one.
    cause: Optional[int]
    ready: Optional[int]
    reduced: Optional[int]
    #: The same on a device that works asynchronously, to be read later.
    ready_mark: Any = None
    reduced_mark: Any = None


class Turn:
    """One turn of the loop, while it runs."""

    __slots__ = (
        "begin",
        "begin_mark",
        "clock",
        "data",
        "data_mark",
        "epoch",
        "reductions",
        "samples",
        "shape",
    )

    def __init__(self, epoch: int, begin: int, clock: int = 0) -> None:
        self.epoch = epoch
        self.begin = begin
        #: Wall minus monotonic clock, as it was lately.
        self.clock = clock
        self.data: Optional[int] = None
        self.samples: Optional[int] = None
        #: Of the batch, whose samples are counted later.
        self.shape: Optional[Sequence[int]] = None
        self.reductions: List[Reduction] = []
        #: As in Reduction.
        self.begin_mark: Any = None
        self.data_mark: Any = None

    def reduced(self, reduction: Reduction) -> None:
        """Gradients were reduced; again without a new cause, the later one counts."""
        if self.reductions and self.reductions[-1].cause == reduction.cause:
            self.reductions.pop()
        self.reductions.append(reduction)


class StepAssembler:
    """Turns turns into rows; keeps what a step needs across turns.

    ``counts`` says that reductions are seen: only then can turns be summed into steps, otherwise
    every turn is a step. With a ``single`` rank, what is ready needs no reducing.
    """

    def __init__(self, counts: bool, single: bool) -> None:
        self._counts = counts
        self._single = single
        self._turns: List[StepRow] = []
        self._any_reduction = False

    @property
    def lost_count(self) -> bool:
        """Whether turns pile up and no reduction has ever been seen."""
        return self._counts and not self._any_reduction and len(self._turns) >= _MOST_TURNS

    def rows(self, turn: Turn, end: int, ready: Optional[int] = None) -> List[StepRow]:
        """Rows of a turn that has ended: one for each of its reductions.

        The rows have no numbers yet. ``ready`` is when the last gradient was there, for a turn
        whose reductions are not seen.
        """
        if not self._counts:
            return [self._row(turn, Reduction(None, ready, None), end)]
        if not turn.reductions:
            self._turns.append(self._row(turn, Reduction(None, None, None), end))
            return []
        self._any_reduction = True
        rows = []
        last = turn.reductions[-1]
        for reduction in turn.reductions:
            # Several reductions in one turn: what is between them belongs to the later one.
            row_end = end if reduction is last else reduction.reduced or end
            row = self._row(turn, reduction, row_end)
            rows.append(sum_of([*self._turns, row]) if self._turns else row)
            self._turns.clear()
            turn.begin = turn.data = row.end
            turn.samples = None if turn.samples is None else 0
        return rows

    def give_up(self) -> List[StepRow]:
        """What is left when nothing more comes: rows of turns only if there never was a reduction.

        From here on every turn is a step then. Turns after the last reduction make no step.
        """
        if self._any_reduction or not self._counts:
            return []
        self._counts = False
        rows, self._turns = self._turns, []
        return rows

    def _row(self, turn: Turn, reduction: Reduction, end: int) -> StepRow:
        ready = _within(reduction.ready, turn.data, end)
        reduced = ready if self._single else _within(reduction.reduced, ready or turn.data, end)
        return StepRow(
            0, turn.epoch, turn.begin, turn.data, ready, reduced, end, 1, turn.samples, turn.clock
        )


def _within(stamp: Optional[int], low: Optional[int], high: int) -> Optional[int]:
    """Return the timestamp if it lies in its turn: an earlier turn's gradients do not count here."""
    return stamp if stamp is not None and (low or 0) <= stamp <= high else None

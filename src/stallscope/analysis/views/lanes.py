"""Lay out a run's steps in lanes, one per rank, on one axis of time, equally fast at every zoom.

Every step ends at R(i) for all ranks, so all lanes share its start and end. Zoomed out, a lane consists
of cells of 2^k steps. A cell has the means of its rank's stages, and its mean and maximum delay against
the reference rank. Zoomed in, a cell is one step.

If there are more ranks than lanes, neighbours share one: ranks of one host, then whole hosts. A cell
that no rank of its lane has measured is NaN, never zero.

A run's generations follow each other, and no cell has steps of two of them. A rank number that moves to
another host has another lane there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from stallscope.arrays.types import Ints

from ..ledger.ledger import GAPS, Ledger
from ..result import GenerationLedger
from .lane_sums import (
    LANE_STAGES,
    Floats32,
    LaneSums,
    UsuallyLate,
    groupings,
    late_from,
    usually_late,
)

__all__ = ["BETWEEN", "LANE_STAGES", "Floats32", "Gap", "Lanes", "LanesView"]

#: Time between steps: time without records, then the gaps of the ledger.
BETWEEN = ("pause", *GAPS)

T = TypeVar("T", bound=np.generic)

_MS = 1e-6
# The most gaps that one chart can show; if there are more, it shows the longest.
_MOST_GAPS = 500


@dataclass(frozen=True)
class Gap:
    """Time between two steps: its start, and the nanoseconds of each kind of BETWEEN."""

    begin: int
    parts: tuple[int, ...]


@dataclass(frozen=True)
class LanesView:
    """Lanes × cells of a part of a run; milliseconds, NaN if no rank of a lane measured them."""

    steps_per_cell: int
    #: Per cell, the positions of its first and last step, and of its generation.
    first_step: Ints
    last_step: Ints
    generation: Ints
    #: L + 1 rows: lane i has those from ``edges[i]`` up to ``edges[i + 1]``.
    edges: Ints
    #: Lanes × generations of the run: the ranks of a generation in a lane.
    members: Ints
    #: 4 × lanes × cells, in the order of LANE_STAGES.
    stages: Floats32
    #: Lanes × cells: how much later than the reference rank, on average and at most.
    late: Floats32
    latest: Floats32
    #: Per cell: means of the whole step and of exposed allreduce.
    total: Floats32
    allreduce: Floats32
    #: Per cell, the row that was last most often, and the number of its steps in which it was.
    last: Ints
    last_count: Ints


class Lanes:
    """The generations of a run on one axis of time from the first step's start, at every zoom.

    Args:
        generations: at least one, in the order in which they began.
        longest_pause: nanoseconds; sessions that are further apart, or overlap, were recorded on
            unrelated clocks, and follow each other without a gap.
    """

    def __init__(self, generations: Sequence[GenerationLedger], longest_pause: int) -> None:
        self.generations = tuple(generations)
        places = _places(generations)
        #: Per row, its host and its rank: ranks of one host are neighbours.
        self.hosts = tuple(host for host, _ in places)
        self.ranks = tuple(rank for _, rank in places)
        #: The position of each generation's first step, and the number of all steps.
        self.starts = np.cumsum([0, *(len(generation.ledger) for generation in generations)])
        #: Of every step.
        self.steps = self.of_steps(lambda ledger: ledger.steps)
        self.epochs = self.of_steps(lambda ledger: ledger.epochs)
        self._total = self.of_steps(lambda ledger: ledger.total)
        self._gaps = self.of_steps(lambda ledger: ledger.gaps)
        #: Per step, nanoseconds: the start of the gap before it, its own start, and its end.
        self.gap_begin, self.begin, self.end = _axis(
            _on_one_clock(generations), self._total, self._gaps, longest_pause
        )
        #: Cells that are later than this are marked, ms.
        self.late_from = late_from(generations)
        self._groupings = groupings(self.hosts)
        self._parts = [_Part(generation, places, self._groupings) for generation in generations]
        self._pause = np.zeros(len(self), np.int64)
        self._pause[1:] = self.gap_begin[1:] - self.end[:-1]
        self._with_gap = np.flatnonzero(self.begin - self.gap_begin + self._pause > 0)

    def __len__(self) -> int:
        return int(self.starts[-1])

    @cached_property
    def usually_late(self) -> UsuallyLate:
        """Return how often ranks are marked as late in steps that are not unusual."""
        return usually_late(self.generations, self.late_from)

    @property
    def span(self) -> int:
        """Return the nanoseconds from the first step's start to the last one's end."""
        return int(self.end[-1])

    @property
    def nbytes(self) -> int:
        """Return the bytes of memory, without the ledgers'."""
        return sum(part.sums.nbytes for part in self._parts)

    def of_steps(self, values: Callable[[Ledger], Ints]) -> Ints:
        """Return values of the ledgers' steps for all steps of the run."""
        return np.concatenate([values(generation.ledger) for generation in self.generations])

    def generation_at(self, positions: Ints) -> Ints:
        """Return the positions of the generations of these steps."""
        return np.searchsorted(self.starts, positions, "right") - 1

    def row_of(self, rank: int, generation: int | None = None) -> int | None:
        """Return the row of a rank; None if it is not there.

        Args:
            rank: its number.
            generation: the position of its generation, by default the last one that has it.
        """
        among = reversed(self._parts) if generation is None else [self._parts[generation]]
        return next((row for part in among if (row := part.row_of(rank)) is not None), None)

    def rows_of(self, generation: int) -> Ints:
        """Return the rows of a generation's ranks, in the order of its ledger."""
        return self._parts[generation].row_of_position

    def last_rows(self, positions: Ints) -> Ints:
        """Return the rows of the ranks that were last in these steps."""
        return self._picked(
            positions, lambda part, at: part.row_of_position[part.ledger.critical[at]]
        )

    def reference_rows(self, positions: Ints) -> Ints:
        """Return the rows of the reference ranks of these steps."""
        return self._picked(
            positions, lambda part, at: part.row_of_position[part.ledger.reference[at]]
        )

    def causes(self, positions: Ints) -> Ints:
        """Return ``Ledger.cause`` of these steps."""
        return self._picked(positions, lambda part, at: part.ledger.cause[at])

    def at(self, time: int) -> int:
        """Return the position of the step at a time, or of the next one; the last step after the end."""
        return min(int(np.searchsorted(self.end, time, "right")), len(self) - 1)

    def view(
        self, begin: int, end: int, rows: tuple[int, int], most_lanes: int, most_cells: int
    ) -> LanesView:
        """Return the lanes between two times for some rows.

        Args:
            begin: nanoseconds.
            end: nanoseconds, after ``begin``.
            rows: the first one and the one after the last.
            most_lanes: the largest number of lanes for these rows.
            most_cells: the largest number of cells along the axis; one more for each
                generation if cells are cut.
        """
        edges = self._edges(rows, most_lanes)
        parts, per_cell = self._cells(begin, end, most_cells)
        cells = [self._parts[at].cells(edges, steps, per_cell) for at, steps in parts]
        values = _joined([part.values for part in cells], axis=2)
        first_steps = [
            self.starts[at] + np.arange(steps.start, steps.stop, per_cell) for at, steps in parts
        ]
        last_steps = [
            np.minimum(first + per_cell, self.starts[at] + steps.stop) - 1
            for first, (at, steps) in zip(first_steps, parts, strict=True)
        ]
        return LanesView(
            steps_per_cell=per_cell,
            first_step=_joined(first_steps),
            last_step=_joined(last_steps),
            generation=np.repeat([at for at, _ in parts], [len(first) for first in first_steps]),
            edges=edges,
            members=np.stack([part.members(edges) for part in self._parts], axis=1),
            stages=values[:4],
            late=values[4],
            latest=_joined([part.latest for part in cells], axis=1),
            total=_joined([part.total for part in cells]),
            allreduce=_joined([part.allreduce for part in cells]),
            last=_joined([part.last for part in cells]),
            last_count=_joined([part.last_count for part in cells]),
        )

    def gaps(self, begin: int, end: int, shortest: int = 0) -> list[Gap]:
        """Return the gaps between steps in a part of the run, without short ones."""
        low, high = np.searchsorted(self._with_gap, (self.at(begin), self.at(end) + 1))
        at = self._with_gap[low:high]
        length = self.begin[at] - self.gap_begin[at] + self._pause[at]
        at, length = at[length >= shortest], length[length >= shortest]
        if len(at) > _MOST_GAPS:
            at = np.sort(at[np.argpartition(length, -_MOST_GAPS)[-_MOST_GAPS:]])
        return [self._gap(int(step)) for step in at]

    def _gap(self, step: int) -> Gap:
        pause = int(self._pause[step])
        gaps = self._gaps[step] if self.begin[step] > self.gap_begin[step] else (0,) * len(GAPS)
        return Gap(int(self.gap_begin[step]) - pause, (pause, *(int(part) for part in gaps)))

    def _edges(self, rows: tuple[int, int], most: int) -> Ints:
        """Return the rows at which lanes start and end: the smallest groups that fit."""
        for starts in self._groupings:
            low = int(np.searchsorted(starts, rows[0], "right")) - 1
            high = int(np.searchsorted(starts, rows[1], "left"))
            if high - low <= most:
                break
        return np.append(starts, len(self.ranks))[low : high + 1]

    def _cells(self, begin: int, end: int, most: int) -> tuple[list[tuple[int, slice]], int]:
        """Return steps in whole cells (a generation's last may be shorter), and the steps per cell.

        The steps of each generation in view are counted from its first one.
        """
        first = self.at(begin)
        after = max(int(np.searchsorted(self.gap_begin, end, "left")), first + 1)
        low, high = self.generation_at(np.array([first, after - 1])).tolist()
        generations = range(low, high + 1)
        lows = np.maximum(first - self.starts[generations], 0)
        sizes = np.diff(self.starts)[generations]
        highs = np.minimum(after - self.starts[generations], sizes)
        per_cell = 1
        while (-((lows - highs) // per_cell)).sum() > max(most, len(generations)):
            per_cell *= 2
        lows -= lows % per_cell
        highs = np.minimum(-(-highs // per_cell) * per_cell, sizes)
        return [
            (generation, slice(int(low), int(high)))
            for generation, low, high in zip(generations, lows, highs, strict=True)
        ], per_cell

    def _picked(self, positions: Ints, values: Callable[[_Part, Ints], Ints]) -> Ints:
        """Look up values of some steps by generation, with their positions in it."""
        picked = np.zeros(len(positions), np.int64)
        generations = self.generation_at(positions)
        for generation in np.unique(generations):
            selected = generations == generation
            picked[selected] = values(
                self._parts[generation], positions[selected] - self.starts[generation]
            )
        return picked


@dataclass(frozen=True)
class _Cells:
    """Cells of one generation: 5 × lanes × cells, lanes × cells, and per cell; see LanesView."""

    values: Floats32
    latest: Floats32
    total: Floats32
    allreduce: Floats32
    last: Ints
    last_count: Ints


class _Part:
    """One generation in the lanes; it has some of the rows."""

    def __init__(
        self,
        generation: GenerationLedger,
        places: Sequence[tuple[str, int]],
        groupings: Sequence[Ints],
    ) -> None:
        self.ledger = generation.ledger
        row_of = {place: row for row, place in enumerate(places)}
        #: Per rank of the ledger, its row.
        self.row_of_position = np.array(
            [row_of[place] for place in zip(generation.hosts, generation.ledger.ranks, strict=True)]
        )
        positions = np.argsort(self.row_of_position)
        #: Its rows in ascending order.
        self._rows = self.row_of_position[positions]
        self.sums = LaneSums(
            generation.ledger, positions, [self._group_starts(starts) for starts in groupings]
        )

    def row_of(self, rank: int) -> int | None:
        """Return the row of a rank; None if it is not in the generation."""
        ranks = self.ledger.ranks
        return int(self.row_of_position[ranks.index(rank)]) if rank in ranks else None

    def members(self, edges: Ints) -> Ints:
        """Count the ranks between these rows."""
        return np.diff(np.searchsorted(self._rows, edges))

    def cells(self, edges: Ints, steps: slice, per_cell: int) -> _Cells:
        """Return cells of these steps, which start with a whole cell."""
        values, latest = self._values(edges, steps, per_cell)
        last, last_count = self._last(steps, per_cell)
        ledger = self.ledger
        return _Cells(
            values=values,
            latest=latest,
            total=_mean_ms(ledger.total[steps], per_cell),
            allreduce=_mean_ms(ledger.allreduce[steps], per_cell),
            last=last,
            last_count=last_count,
        )

    def _values(self, edges: Ints, steps: slice, per_cell: int) -> tuple[Floats32, Floats32]:
        """Return the means of cells, and their greatest lateness; NaN in lanes without its ranks."""
        members = self.members(edges)
        filled = np.flatnonzero(members)
        lanes, cells = len(members), -(-(steps.stop - steps.start) // per_cell)
        if len(filled):
            lines = np.searchsorted(self._rows, np.append(edges[filled], edges[filled[-1] + 1]))
            sums = self.sums.over(lines, steps, per_cell)
            means = sums.means(np.diff(lines))
            known = np.where(np.isfinite(sums.latest), sums.latest, np.float32(np.nan))
            if len(filled) == lanes:
                return means, known
        values = np.full((5, lanes, cells), np.nan, np.float32)
        latest = np.full((lanes, cells), np.nan, np.float32)
        if len(filled):
            values[:, filled], latest[filled] = means, known
        return values, latest

    def _group_starts(self, starts: Ints) -> Ints:
        """Return where groups of rows start among its own rows."""
        group_starts = np.unique(np.searchsorted(self._rows, starts))
        return group_starts[group_starts < len(self._rows)]

    def _last(self, steps: slice, per_cell: int) -> tuple[Ints, Ints]:
        critical = self.ledger.critical[steps]
        if per_cell == 1:
            return self.row_of_position[critical], np.ones(len(critical), np.int64)
        cells, ranks = -(-len(critical) // per_cell), len(self._rows)
        cell = np.arange(len(critical)) // per_cell
        often = np.bincount(cell * ranks + critical, minlength=cells * ranks).reshape(cells, ranks)
        return self.row_of_position[often.argmax(axis=1)], often.max(axis=1)


def _joined(arrays: Sequence[npt.NDArray[T]], axis: int = 0) -> npt.NDArray[T]:
    """Join arrays of the generations; a single one is not copied."""
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays, axis)


def _places(generations: Sequence[GenerationLedger]) -> list[tuple[str, int]]:
    """Return the hosts and ranks of all generations by host, hosts in order of appearance."""
    places = {
        place
        for generation in generations
        for place in zip(generation.hosts, generation.ledger.ranks, strict=True)
    }
    hosts = dict.fromkeys(host for generation in generations for host in generation.hosts)
    number = {host: index for index, host in enumerate(hosts)}
    return sorted(places, key=lambda place: (number[place[0]], place[1]))


def _on_one_clock(generations: Sequence[GenerationLedger]) -> Ints:
    """Return when each step was reduced, by wall clock if all generations have one."""
    known = all(generation.to_wall for generation in generations)
    # Relative to the first generation, so that a single one keeps its clock.
    shifts = [
        generation.to_wall - generations[0].to_wall if known else 0 for generation in generations
    ]
    return np.concatenate(
        [
            generation.ledger.reduced + shift
            for generation, shift in zip(generations, shifts, strict=True)
        ]
    )


def _axis(reduced: Ints, total: Ints, gaps: Ints, longest_pause: int) -> tuple[Ints, Ints, Ints]:
    gap_begin = reduced - total - gaps.sum(axis=1)
    pause = gap_begin[1:] - reduced[:-1]
    foreign = (pause < 0) | (pause > longest_pause)
    shift = np.full(len(reduced), int(reduced[0] - total[0]))
    shift[1:] += np.cumsum(np.where(foreign, pause, 0))
    end = reduced - shift
    begin = end - total
    gap_begin -= shift
    # The axis starts with a step, not with the time before it.
    gap_begin[0] = begin[0]
    return gap_begin, begin, end


def _mean_ms(array: Ints, per_cell: int) -> Floats32:
    starts = np.arange(0, len(array), per_cell)
    count = np.diff(starts, append=len(array))
    return np.asarray(np.add.reduceat(array, starts) / count * _MS, np.float32)

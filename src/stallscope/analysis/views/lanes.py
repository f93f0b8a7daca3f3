"""Lay out a run's steps in lanes, one per rank, on one axis of time, equally fast at every zoom.

Every step ends at R(i) for all ranks, so all lanes share its start and end. Zoomed out, a lane consists
of cells of 2^k steps. A cell has the means of its rank's stages, and its mean and maximum delay against
the reference rank. Zoomed in, a cell is one step.

If there are more ranks than lanes, neighbours share one: ranks of one host, then whole hosts. A cell
that no rank of its lane has measured is NaN, never zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stallscope.arrays.stats import robust_sd
from stallscope.arrays.types import Ints

from ..ledger.ledger import GAPS, Ledger
from .lane_sums import LANE_STAGES, Floats32, LaneSums

__all__ = ["BETWEEN", "LANE_STAGES", "Floats32", "Gap", "Lanes", "View"]

#: Time between steps: time without records, then as in the ledger.
BETWEEN = ("pause", *GAPS)

_MS = 1e-6
# Chance makes a rank late by more than this in less than one of a million cells.
_LATE_SDS = 6.0
_SMALLEST_SHARE = 0.05
# The usual lateness is taken over at most this many ranks and steps: more do not change it.
_RANKS_FOR_USUAL = 64
_STEPS_FOR_USUAL = 2000
# The most gaps that one chart can show; of more, the longest are shown.
_MOST_GAPS = 500


@dataclass(frozen=True)
class Gap:
    """Time between two steps: its start, and the nanoseconds of each kind of BETWEEN."""

    begin: int
    parts: tuple[int, ...]


@dataclass(frozen=True)
class View:
    """Lanes × cells of a part of a run; milliseconds, NaN if no rank of a lane measured them."""

    steps_per_cell: int
    #: Per cell, the positions of its first and last step.
    first_step: Ints
    last_step: Ints
    #: L + 1 rows: lane i has those from ``edges[i]`` up to ``edges[i + 1]``.
    edges: Ints
    #: 4 × lanes × cells, in the order of LANE_STAGES.
    stages: Floats32
    #: Lanes × cells: how much later than the reference rank, on average and at most.
    late: Floats32
    latest: Floats32
    #: Per cell: means of the whole step and of exposed allreduce.
    total: Floats32
    allreduce: Floats32
    #: Per cell, the row that came last most often, and in how many of its steps.
    last: Ints
    last_count: Ints


class Lanes:
    """A ledger on one axis of time from its first step's start, at every zoom.

    Args:
        ledger: with at least one step and one rank.
        hosts: the ranks' hosts, in the ledger's order.
        longest_pause: nanoseconds; sessions that are further apart, or overlap, were recorded on
            unrelated clocks, and follow each other without a gap.
    """

    def __init__(self, ledger: Ledger, hosts: Sequence[str], longest_pause: int) -> None:
        self.ledger = ledger
        #: Per row, the position of its rank in the ledger: ranks of one host are neighbours.
        self.rows = _by_host(hosts)
        #: Per step, nanoseconds: the start of the gap before it, its own start, and its end.
        self.gap_begin, self.begin, self.end = _axis(ledger, longest_pause)
        #: Cells that are later than this are marked, ms.
        self.late_from = _late_from(ledger)
        self._row_of = np.argsort(self.rows)
        self._groupings = _groupings([hosts[row] for row in self.rows])
        self._sums = LaneSums(ledger, self.rows, self._groupings)
        self._pause = np.zeros(len(ledger), np.int64)
        self._pause[1:] = self.gap_begin[1:] - self.end[:-1]
        self._with_gap = np.flatnonzero(self.begin - self.gap_begin + self._pause > 0)

    def __len__(self) -> int:
        return len(self.ledger)

    @property
    def span(self) -> int:
        """Nanoseconds from the first step's start to the last one's end."""
        return int(self.end[-1])

    @property
    def nbytes(self) -> int:
        """Bytes of memory, without the ledger's."""
        return self._sums.nbytes

    def row_of(self, rank: int) -> int | None:
        """Return the row of a rank; None if it is not in the ledger."""
        ranks = self.ledger.ranks
        return int(self._row_of[ranks.index(rank)]) if rank in ranks else None

    def rows_of(self, positions: Ints) -> Ints:
        """Return the rows of ranks at these positions in the ledger; -1 stays -1."""
        return np.where(positions < 0, -1, self._row_of[positions])

    def at(self, time: int) -> int:
        """Return the position of the step at a time, or of the next one; the last step after the end."""
        return min(int(np.searchsorted(self.end, time, "right")), len(self) - 1)

    def view(
        self, begin: int, end: int, rows: tuple[int, int], most_lanes: int, most_cells: int
    ) -> View:
        """Return the lanes between two times for some rows.

        Args:
            begin: nanoseconds.
            end: nanoseconds, after ``begin``.
            rows: the first one and the one after the last.
            most_lanes: the largest number of lanes for these rows.
            most_cells: the largest number of cells along the axis; one more if cells are cut.
        """
        edges = self._edges(rows, most_lanes)
        steps, per_cell = self._cells(begin, end, most_cells)
        sums = self._sums.over(edges, steps, per_cell)
        means = sums.means(np.diff(edges))
        first_step = np.arange(steps.start, steps.stop, per_cell)
        last, last_count = self._last(steps, per_cell)
        return View(
            steps_per_cell=per_cell,
            first_step=first_step,
            last_step=np.minimum(first_step + per_cell, steps.stop) - 1,
            edges=edges,
            stages=means[:4],
            late=means[4],
            latest=np.where(np.isfinite(sums.latest), sums.latest, np.float32(np.nan)),
            total=_mean_ms(self.ledger.total[steps], per_cell),
            allreduce=_mean_ms(self.ledger.allreduce[steps], per_cell),
            last=last,
            last_count=last_count,
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
        own = (
            self.ledger.gaps[step] if self.begin[step] > self.gap_begin[step] else (0,) * len(GAPS)
        )
        return Gap(int(self.gap_begin[step]) - pause, (pause, *(int(part) for part in own)))

    def _edges(self, rows: tuple[int, int], most: int) -> Ints:
        """Return the rows at which lanes start and end: the smallest groups that fit."""
        for starts in self._groupings:
            low = int(np.searchsorted(starts, rows[0], "right")) - 1
            high = int(np.searchsorted(starts, rows[1], "left"))
            if high - low <= most:
                break
        return np.append(starts, len(self.rows))[low : high + 1]

    def _cells(self, begin: int, end: int, most: int) -> tuple[slice, int]:
        """Return steps in whole cells (the run's last may be shorter), and the steps per cell."""
        first = self.at(begin)
        behind = max(int(np.searchsorted(self.gap_begin, end, "left")), first + 1)
        per_cell = 1
        while -(-(behind - first) // per_cell) > most:
            per_cell *= 2
        return slice(
            first - first % per_cell, min(-(-behind // per_cell) * per_cell, len(self))
        ), per_cell

    def _last(self, steps: slice, per_cell: int) -> tuple[Ints, Ints]:
        critical = self.rows_of(self.ledger.critical[steps])
        if per_cell == 1:
            return critical, np.ones(len(critical), np.int64)
        cells, rows = -(-len(critical) // per_cell), len(self.rows)
        cell = np.arange(len(critical)) // per_cell
        often = np.bincount(cell * rows + critical, minlength=cells * rows).reshape(cells, rows)
        return often.argmax(axis=1), often.max(axis=1)


def _by_host(hosts: Sequence[str]) -> Ints:
    """Sort ranks (positions) by host, hosts in the order of their lowest ranks."""
    number = {host: index for index, host in enumerate(dict.fromkeys(hosts))}
    return np.argsort([number[host] for host in hosts], kind="stable")


def _axis(ledger: Ledger, longest_pause: int) -> tuple[Ints, Ints, Ints]:
    gap_begin = ledger.reduced - ledger.total - ledger.gaps.sum(axis=1)
    pause = gap_begin[1:] - ledger.reduced[:-1]
    foreign = (pause < 0) | (pause > longest_pause)
    shift = np.full(len(ledger), int(ledger.reduced[0] - ledger.total[0]))
    shift[1:] += np.cumsum(np.where(foreign, pause, 0))
    end = ledger.reduced - shift
    begin = end - ledger.total
    gap_begin -= shift
    # The axis starts with a step, not with the time before it.
    gap_begin[0] = begin[0]
    return gap_begin, begin, end


def _late_from(ledger: Ledger) -> float:
    steps = _evenly(len(ledger), _STEPS_FOR_USUAL)
    ranks = _evenly(len(ledger.ranks), _RANKS_FOR_USUAL)
    reference = ledger.arrival[steps, ledger.reference[steps]]
    late = ledger.arrival[np.ix_(steps, ranks)] - reference[:, None]
    # Around zero, the lateness of the reference rank itself.
    others = late[ranks != ledger.reference[steps][:, None]]
    scatter = robust_sd(np.concatenate([others, -others]))
    smallest = _SMALLEST_SHARE * float(np.median(ledger.total))
    return max(_LATE_SDS * scatter, smallest) * _MS


def _evenly(number: int, most: int) -> Ints:
    return np.unique(np.linspace(0, number - 1, min(number, most)).astype(np.int64))


def _groupings(hosts: Sequence[str]) -> list[Ints]:
    """Return where lanes start: with 1, 2, 4, … neighbours of a host each, then 1, 2, 4, … hosts."""
    count = len(hosts)
    host_starts = np.array([row for row in range(count) if not row or hosts[row] != hosts[row - 1]])
    sizes = np.diff(host_starts, append=count)
    found, size = [], 1
    while size < sizes.max():
        parts = zip(host_starts, sizes, strict=True)
        found.append(np.concatenate([start + np.arange(0, own, size) for start, own in parts]))
        size *= 2
    size = 1
    while not found or len(found[-1]) > 1:
        found.append(host_starts[::size])
        size *= 2
    return found


def _mean_ms(array: Ints, per_cell: int) -> Floats32:
    starts = np.arange(0, len(array), per_cell)
    count = np.diff(starts, append=len(array))
    return np.asarray(np.add.reduceat(array, starts) / count * _MS, np.float32)

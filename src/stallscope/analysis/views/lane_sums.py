"""Sum ranks' stages over blocks of steps at several levels, like the tiles of a map.

A level has blocks of four times as many steps as the one below it. Neighbouring ranks are also summed in
groups, so that a chart of a thousand ranks needs only a hundred lines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from stallscope.arrays.stats import evenly, robust_sd
from stallscope.arrays.types import Ints
from stallscope.words import RankPart

from ..ledger.ledger import Ledger
from ..result import GenerationLedger

Floats32 = npt.NDArray[np.float32]
#: A rank's own stages in the order of a step; exposed allreduce follows.
LANE_STAGES: tuple[RankPart, ...] = ("other", "input", "compute", "wait")
_MS = 1e-6
_FAN = 4
# Summing this few blocks is faster than a further level.
_FEWEST_BLOCKS = 64
# Cells that are processed together: they fit into the CPU's cache.
_AT_A_TIME = 2**18
# Sums of smaller groups would save too little for their memory.
_RANKS_PER_GROUP = 8

# Chance makes a rank late by more than this in less than one of a million cells.
_LATE_SDS = 6.0
_SMALLEST_SHARE = 0.05
# The usual lateness is taken over at most this many ranks and steps: more do not change it.
_RANKS_FOR_USUAL = 64
_STEPS_FOR_USUAL = 2000


@dataclass(frozen=True)
class Sums:
    """Lines × blocks of steps; float32 milliseconds over the steps that were measured."""

    #: 5 × lines × blocks: the stages, then the delay against the reference rank.
    values: Floats32
    #: The greatest lateness; -inf where nothing was measured.
    latest: Floats32
    #: Measured steps, summed over ranks. If all are ``alike``, because every rank measured every step, a
    #: single line stands for each rank.
    count: Floats32
    alike: bool

    def by(self, fan: int) -> Sums:
        """Join every ``fan`` blocks; the last group may have fewer."""
        if fan == 1:
            return self
        return Sums(
            _joined(self.values, fan, np.add),
            _joined(self.latest, fan, np.maximum),
            _joined(self.count, fan, np.add),
            self.alike,
        )

    def take(self, lines: slice, blocks: slice) -> Sums:
        """Return some of the lines and blocks."""
        count = self.count if self.alike else self.count[lines]
        values, latest = self.values[:, lines, blocks], self.latest[lines, blocks]
        return Sums(values, latest, count[:, blocks], self.alike)

    def grouped(self, sizes: Ints) -> Sums:
        """Add up groups of neighbouring lines."""
        if len(sizes) == self.latest.shape[0]:
            return self
        starts = np.cumsum(sizes) - sizes
        return Sums(
            np.add.reduceat(self.values, starts, axis=1),
            np.maximum.reduceat(self.latest, starts, axis=0),
            self.count if self.alike else np.add.reduceat(self.count, starts, axis=0),
            self.alike,
        )

    def means(self, ranks: Ints) -> Floats32:
        """Return means of lines with these numbers of ranks, 5 × lines × blocks; NaN if missing."""
        count = self.count * ranks[:, None] if self.alike else self.count
        with np.errstate(invalid="ignore"):
            return np.asarray(self.values / np.where(count > 0, count, np.nan), np.float32)

    def put(self, lines: slice, first: int, part: Sums) -> None:
        """Write a part into its place."""
        blocks = slice(first, first + part.latest.shape[1])
        self.values[:, lines, blocks] = part.values
        self.latest[lines, blocks] = part.latest
        self.count[slice(None) if self.alike else lines, blocks] = part.count


class LaneSums:
    """Sums over a ledger's steps, for every rank and for groups of ranks.

    Args:
        ledger: with at least one step and one rank.
        rows: the order of the ranks, as positions in the ledger.
        groupings: rows at which groups of neighbours start, the smallest groups first.
    """

    def __init__(self, ledger: Ledger, rows: Ints, groupings: Sequence[Ints]) -> None:
        self._ledger, self._rows = ledger, rows
        self._alike = bool(ledger.measured.all())
        count = len(rows)
        few = [starts for starts in groupings if len(starts) * _RANKS_PER_GROUP <= count]
        self._groups = few[0] if few and len(few[0]) > 1 else np.zeros(0, np.int64)
        # Levels of 1, 4, 16, … steps; single steps of every rank are in the ledger.
        self._of_ranks: list[Sums] = [_empty(0, 0, self._alike)]
        self._of_groups: list[Sums] = []
        self._read()
        for levels in (self._of_ranks, self._of_groups):
            while levels and levels[-1].latest.shape[1] > _FEWEST_BLOCKS:
                levels.append(levels[-1].by(_FAN))

    @property
    def nbytes(self) -> int:
        """Return the bytes of memory."""
        return sum(
            array.nbytes
            for level in (*self._of_ranks, *self._of_groups)
            for array in (level.values, level.latest, level.count)
        )

    def over(self, edges: Ints, steps: slice, per_block: int) -> Sums:
        """Return sums of lines over blocks of steps, from the coarsest level that has them.

        Args:
            edges: rows at which the lines start, and the one after the last.
            steps: starts with a whole block.
            per_block: a power of two.
        """
        lines, levels = edges, self._of_ranks
        if np.isin(edges, np.append(self._groups, len(self._rows))).all():
            lines = np.searchsorted(self._groups, edges)
            levels = self._of_groups
        level, fan = 0, per_block
        while fan % _FAN == 0 and level + 1 < len(levels):
            level, fan = level + 1, fan // _FAN
        size = per_block // fan
        rows = slice(int(lines[0]), int(lines[-1]))
        blocks = slice(steps.start // size, -(-steps.stop // size))
        if level == 0 and levels is self._of_ranks:
            return self._single_steps(rows, steps, np.diff(edges), fan)
        return levels[level].take(rows, blocks).grouped(np.diff(lines)).by(fan)

    def _single_steps(self, rows: slice, steps: slice, sizes: Ints, fan: int) -> Sums:
        starts = rows.start + np.cumsum(sizes) - sizes
        parts = []
        for chunk, _ in _parts(np.append(starts, rows.stop), steps.stop - steps.start):
            at = np.searchsorted(starts, (chunk.start, chunk.stop))
            parts.append(self._exact(chunk, steps).grouped(sizes[slice(*at)]).by(fan))
        return _stacked(parts)

    def _read(self) -> None:
        """Read the ledger once: blocks of steps of every rank, single steps of groups."""
        rows, steps = len(self._rows), len(self._ledger)
        blocks = _empty(rows, -(-steps // _FAN), self._alike)
        single = _empty(len(self._groups), steps, self._alike)
        starts = self._groups if len(self._groups) else np.arange(rows)
        sizes = np.diff(starts, append=rows)
        for chunk, at in _parts(np.append(starts, rows), steps):
            part = self._exact(chunk, at)
            blocks.put(chunk, at.start // _FAN, part.by(_FAN))
            if len(self._groups):
                lines = slice(*np.searchsorted(starts, (chunk.start, chunk.stop)).tolist())
                single.put(lines, at.start, part.grouped(sizes[lines]))
        self._of_ranks.append(blocks)
        if len(self._groups):
            self._of_groups.append(single)

    def _exact(self, rows: slice, steps: slice) -> Sums:
        """Read single steps of some rows from the ledger."""
        ledger, chosen = self._ledger, self._rows[rows]
        fetch, compute, arrival, measured = (
            _lines(array, chosen, steps)
            for array in (ledger.input, ledger.compute, ledger.arrival, ledger.measured)
        )
        at = np.arange(steps.start, steps.stop)
        late = arrival - ledger.arrival[at, ledger.reference[steps]]
        values = np.empty((5, *arrival.shape), np.float32)
        stages = (arrival - fetch - compute, fetch, compute, ledger.last[steps] - arrival, late)
        for index, stage in enumerate(stages):
            np.multiply(stage, _MS, out=values[index], casting="same_kind")
        if self._alike:
            return Sums(values, values[4], np.ones((1, arrival.shape[1]), np.float32), True)
        latest = np.where(measured, values[4], np.float32(-np.inf))
        values[:, ~measured] = 0
        return Sums(values, latest, measured.astype(np.float32), False)


def _parts(edges: Ints, steps: int) -> Iterator[tuple[slice, slice]]:
    """Split rows and steps into parts that fit into the cache; rows between two edges stay together."""
    wide = min(steps, _AT_A_TIME)
    low = 0
    while low < len(edges) - 1:
        high = int(np.searchsorted(edges, edges[low] + _AT_A_TIME // wide, "right")) - 1
        high = max(high, low + 1)
        for step in range(0, steps, wide):
            yield slice(int(edges[low]), int(edges[high])), slice(step, min(step + wide, steps))
        low = high


def _empty(lines: int, blocks: int, alike: bool) -> Sums:
    return Sums(
        np.empty((5, lines, blocks), np.float32),
        np.empty((lines, blocks), np.float32),
        np.empty((1 if alike else lines, blocks), np.float32),
        alike,
    )


def _lines(array: npt.NDArray[Any], chosen: Ints, steps: slice) -> npt.NDArray[Any]:
    """Return an n × R array as rows × steps."""
    first, last = int(chosen[0]), int(chosen[-1])
    if (np.diff(chosen) == 1).all():
        return array.T[first : last + 1, steps]
    return np.asarray(array.T[chosen, steps])


def _stacked(parts: Sequence[Sums]) -> Sums:
    if len(parts) == 1:
        return parts[0]
    return Sums(
        np.concatenate([part.values for part in parts], axis=1),
        np.concatenate([part.latest for part in parts]),
        parts[0].count if parts[0].alike else np.concatenate([part.count for part in parts]),
        parts[0].alike,
    )


def _joined(array: Floats32, fan: int, join: Callable[..., Any]) -> Floats32:
    """Join blocks of ``fan`` neighbours along the last axis; the last block may be shorter."""
    result = array[..., ::fan].copy()
    for offset in range(1, fan):
        part = array[..., offset::fan]
        left = result[..., : part.shape[-1]]
        join(left, part, out=left)
    return result


# -- Choose which ranks share a lane, and how late a cell must be to stand out --------------------


@dataclass(frozen=True)
class UsuallyLate:
    """Shares of the steps that are not unusual, although a rank is marked as late in them."""

    #: Per rank, the steps in which it is marked.
    by_rank: Mapping[int, float]
    #: The steps in which any rank is marked.
    any_rank: float


def groupings(hosts: Sequence[str]) -> list[Ints]:
    """Return where lanes start: each has 1, 2, 4, … neighbours on a host, then 1, 2, 4, … hosts."""
    count = len(hosts)
    host_starts = np.array([row for row in range(count) if not row or hosts[row] != hosts[row - 1]])
    sizes = np.diff(host_starts, append=count)
    starts, size = [], 1
    while size < sizes.max():
        parts = zip(host_starts, sizes, strict=True)
        starts.append(
            np.concatenate([start + np.arange(0, length, size) for start, length in parts])
        )
        size *= 2
    size = 1
    while not starts or len(starts[-1]) > 1:
        starts.append(host_starts[::size])
        size *= 2
    return starts


def late_from(generations: Sequence[GenerationLedger]) -> float:
    """Return the lateness above which a cell is unusual, ms."""
    # Without warm-up: ranks trace and connect at different times, which would hide later lateness.
    ledgers = [
        generation.ledger if generation.steady is None else generation.steady
        for generation in generations
    ]
    others = np.concatenate([_lateness(ledger) for ledger in ledgers])
    scatter = robust_sd(np.concatenate([others, -others]))
    total = np.concatenate([ledger.total for ledger in ledgers])
    return max(_LATE_SDS * scatter, _SMALLEST_SHARE * float(np.median(total))) * _MS


def usually_late(generations: Sequence[GenerationLedger], limit: float) -> UsuallyLate:
    """Return how often ranks are later than ``limit`` (ms) in steady steps that are not unusual."""
    steps, with_late = 0, 0
    by_rank: dict[int, list[int]] = {}
    for generation in generations:
        steady = np.setdiff1d(np.flatnonzero(~generation.warm_up), generation.late_steps)
        sample = steady[evenly(len(steady), _STEPS_FOR_USUAL)]
        ledger = generation.ledger
        reference = ledger.arrival[sample, ledger.reference[sample]]
        arrival = ledger.arrival[np.ix_(sample, np.arange(len(ledger.ranks)))]
        late = arrival - reference[:, None] >= limit / _MS
        steps, with_late = steps + len(sample), with_late + int(late.any(axis=1).sum())
        for rank, count in zip(ledger.ranks, late.sum(axis=0).tolist(), strict=True):
            counts = by_rank.setdefault(int(rank), [0, 0])
            counts[0] += count
            counts[1] += len(sample)
    shares = {rank: late / max(of, 1) for rank, (late, of) in by_rank.items()}
    return UsuallyLate(shares, with_late / max(steps, 1))


def _lateness(ledger: Ledger) -> Ints:
    """Return how much later than usual some ranks are in some steps."""
    steps = evenly(len(ledger), _STEPS_FOR_USUAL)
    ranks = evenly(len(ledger.ranks), _RANKS_FOR_USUAL)
    reference = ledger.arrival[steps, ledger.reference[steps]]
    late = ledger.arrival[np.ix_(steps, ranks)] - reference[:, None]
    # With two ranks, the slow one would be half of all values.
    unusual = late - np.median(late, axis=0)
    # Leave out the reference rank: its lateness is 0.
    return np.asarray(unusual[ranks != ledger.reference[steps][:, None]])

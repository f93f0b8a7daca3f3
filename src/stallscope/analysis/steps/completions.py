"""Summarise per clock when its ranks were ready and reduced, to align the clocks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stallscope.arrays.blocks import LATEST, NULL, Array, Block, Matrix
from stallscope.arrays.groups import of_each
from stallscope.arrays.partial_sort import smallest_of_few
from stallscope.arrays.quantiles import median
from stallscope.arrays.types import Bools, Floats, Ints


@dataclass(frozen=True)
class ClockCompletions:
    """S steps × C clocks, nanoseconds on each clock."""

    #: When the last of a clock's ranks was ready, ``NULL`` if none was.
    ready: Ints
    #: When the first of its ranks was reduced, ``LATEST`` if none was.
    reduced: Ints
    #: The median of its ranks' completions, ``NULL`` without any; empty if all ranks share a clock.
    completion: Ints
    #: The spread of its ranks' completions, ``NULL`` if one of them is missing.
    apart: Ints

    @classmethod
    def of(cls, timestamps: Matrix, of_rank: Ints, clocks: int) -> ClockCompletions:
        """Summarise ``ready`` and ``reduced`` of all ranks.

        Args:
            timestamps: S × R nanoseconds, each rank on its own clock, ``NULL`` where not measured.
            of_rank: per rank, the index of its clock.
            clocks: how many there are.
        """
        blocks = timestamps.by_steps(_clock_completions, of_rank, clocks)
        return cls(*(np.concatenate(parts, axis=1).T for parts in zip(*blocks, strict=True)))

    def skew(self, of_rank: Ints) -> Floats:
        """Return the typical spread of completions among a clock's ranks; NaN for a single rank."""
        ranks = np.bincount(of_rank, minlength=self.apart.shape[1])
        return np.array(
            [
                _median(self.apart[:, clock]) if ranks[clock] > 1 else np.nan
                for clock in range(len(ranks))
            ]
        )


def _median(apart: Ints) -> float:
    known = apart[apart != NULL]
    return float(median(known)) if len(known) else float("nan")


def _clock_completions(block: Block, of_rank: Ints, clocks: int) -> tuple[Ints, Ints, Ints, Ints]:
    """Compute the fields of ClockCompletions for a block of steps, C × steps each."""
    order = np.argsort(of_rank, kind="stable")
    starts = np.searchsorted(of_rank[order], np.arange(clocks))
    ready, reduced = (_in_order(block[name].T, order) for name in ("ready", "reduced"))
    last = of_each(np.maximum, ready, starts)
    first, latest = (of_each(join, reduced, starts) for join in (np.minimum, np.maximum))
    whole = first != NULL
    apart = np.where(whole, latest - first, NULL)
    if not whole.all():
        filled = np.where(reduced == NULL, LATEST, reduced)
        first = of_each(np.minimum, filled, starts)
    completion = np.empty((0, reduced.shape[1]), np.int64)
    if clocks > 1:
        completion = _medians(reduced, starts, whole)
    return last, first, completion, apart


def _in_order(array: Array, order: Ints) -> Array:
    return array if (np.diff(order) == 1).all() else array[order]


def _medians(reduced: Ints, starts: Ints, whole: Bools) -> Ints:
    """Compute the median over each clock's ranks, C × steps; NULL where no rank measured it."""
    sizes = np.diff(starts, append=len(reduced))
    result = np.empty(whole.shape, np.int64)
    for size in np.unique(sizes).tolist():
        # Clocks with the same number of ranks are computed together.
        clocks = np.flatnonzero(sizes == size)
        ranks = (starts[clocks][:, None] + np.arange(size)).ravel()
        values = _in_order(reduced, ranks) if len(clocks) == len(sizes) else reduced[ranks]
        result[clocks] = _middle(values.reshape(len(clocks), size, -1))
    for clock in np.flatnonzero(~whole.all(axis=1)).tolist():
        partly = np.flatnonzero(~whole[clock])
        times = reduced[starts[clock] : starts[clock] + sizes[clock]].T[partly]
        result[clock, partly] = _middle_of_measured(times)
    return result


def _middle(values: Ints) -> Ints:
    """Compute the median over ranks in int64, because floats would lose digits."""
    ranks = values.shape[1]
    if ranks == 1:
        return values[:, 0]
    low, high = smallest_of_few(values, ((ranks - 1) // 2, ranks // 2))
    return np.asarray(low + (high - low) // 2)


def _middle_of_measured(reduced: Ints) -> Ints:
    """Compute the lower median over the ranks of one clock that measured a step."""
    measured = reduced != NULL
    count = measured.sum(axis=1)
    ordered = np.sort(np.where(measured, reduced, LATEST), axis=1)
    middle = ordered[np.arange(len(ordered)), np.maximum(count - 1, 0) // 2]
    return np.where(count > 0, middle, NULL)

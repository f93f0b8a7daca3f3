"""Bound late timestamps by causality.

No rank is reduced before every rank is ready. A timestamp is taken by a thread that may wait for a CPU
core, so *ready* can be recorded after another rank's *reduced*. The true moment was no later than the
first *reduced* of the step: exactly on one clock, and within the clocks' uncertainty between several.
*Data* comes before *ready*, so the same bound holds for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stallscope.arrays.blocks import LATEST, NULL, Array, Block, Matrix, of_each
from stallscope.arrays.types import Bools, Floats, Ints

_BOUNDED = ("data", "ready")


@dataclass(frozen=True)
class Bounds:
    """Steps in which a rank's *ready* breaks causality, and the latest moment that it allows."""

    #: Positions of the steps, ascending.
    at: Ints
    #: As many × C clocks: nanoseconds on the reference clock, ``LATEST`` where nothing is known.
    latest: Ints

    @classmethod
    def of(
        cls,
        ready: Ints,
        reduced: Ints,
        uncertainty: npt.NDArray[np.float64],
        jumps: Sequence[int] = (),
    ) -> Bounds:
        """Find the steps that break causality.

        Args:
            ready: S × C aligned nanoseconds, the latest of each clock's ranks, ``NULL`` where missing.
            reduced: S × C, the earliest of each clock's ranks, ``LATEST`` where missing.
            uncertainty: per clock, nanoseconds; infinite where a clock could not be compared.
            jumps: positions of steps in which a clock was set: they bound nothing.
        """
        latest = reduced
        if reduced.shape[1] > 1:
            latest = np.minimum(reduced, _by_other_clocks(reduced, uncertainty))
        broken: Bools = np.asarray((ready > latest).any(axis=1))
        broken[list(jumps)] = False
        at = np.flatnonzero(broken)
        return cls(at, latest[at])


#: Causality holds in every step.
UNBROKEN = Bounds(np.zeros(0, np.int64), np.zeros((0, 1), np.int64))


@dataclass(frozen=True)
class LateTimestamps:
    """Every *ready* that came late, one entry each."""

    #: Positions of the step and of the rank, and the least number of nanoseconds that it was late by.
    steps: Ints
    ranks: Ints
    ns: Ints

    def per_step(self, steps: int) -> Ints:
        """Return the nanoseconds of the latest rank, per step."""
        latest = np.zeros(steps, np.int64)
        np.maximum.at(latest, self.steps, self.ns)
        return latest

    def per_rank(self, ranks: int) -> Ints:
        """Return the number of steps in which each rank was late."""
        return np.asarray(np.bincount(self.ranks, minlength=ranks))


def bounded(cells: Matrix, bounds: Bounds, clock_of_rank: Ints) -> tuple[Matrix, LateTimestamps]:
    """Move late timestamps to the latest moment that causality allows.

    Args:
        cells: ``begin``, ``data`` and ``ready`` on the reference clock.
        bounds: the moments.
        clock_of_rank: per rank, the index of its clock.
    """
    if not len(bounds.at):
        nothing = np.zeros(0, np.int64)
        return cells, LateTimestamps(nothing, nothing, nothing)
    blocks = zip(*cells.by_steps(_late, bounds, clock_of_rank), strict=True)
    late = LateTimestamps(*(np.concatenate(parts) for parts in blocks))
    return cells.with_computed(_BOUNDED, _bounded, bounds, clock_of_rank), late


def _by_other_clocks(reduced: Ints, uncertainty: npt.NDArray[np.float64]) -> Ints:
    """Return, per step and clock, the first *reduced* on any clock and its uncertainty."""
    known = np.isfinite(uncertainty)
    margin = np.where(known, uncertainty, 0.0).astype(np.int64)
    usable = known & (reduced != LATEST)
    first = np.where(usable, reduced + margin, LATEST).min(axis=1, keepdims=True)
    return np.where(known & (first != LATEST), first + margin, LATEST)


def _late(block: Block, bounds: Bounds, clock_of_rank: Ints) -> tuple[Ints, Ints, Ints]:
    """Return step, rank and nanoseconds of every late *ready*."""
    rows, latest = _of_block(block, bounds, clock_of_rank)
    if not len(rows):
        return rows, rows, rows
    ready = block["ready"][rows]
    steps, ranks = np.nonzero(ready > latest)
    ns = ready[steps, ranks] - latest[steps, ranks]
    return rows[steps] + block.steps.start, ranks, ns


def _bounded(block: Block, name: str, bounds: Bounds, clock_of_rank: Ints) -> Array:
    """Limit a timestamp to its bound."""
    rows, latest = _of_block(block, bounds, clock_of_rank)
    timestamp = block[name]
    if not len(rows):
        return timestamp
    result = timestamp.copy(order="K")
    result[rows] = np.minimum(timestamp[rows], latest)
    return result


def _of_block(block: Block, bounds: Bounds, clock_of_rank: Ints) -> tuple[Ints, Ints]:
    """Return the rows of a block that have a bound, and the bound of each rank there."""
    inside = block.within(bounds.at)
    rows = bounds.at[inside] - block.steps.start
    if not len(rows):
        return rows, np.zeros((0, len(block.ranks)), np.int64)
    latest = bounds.latest[inside][:, clock_of_rank[block.ranks]]
    # The host records the start of a step itself: an earlier moment does not bound it.
    return rows, np.maximum(latest, block["begin"][rows])


# -- Summarise per clock when its ranks were ready and reduced, to align the clocks ---------------


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
    return float(np.median(known)) if len(known) else float("nan")


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
    below, above = (ranks - 1) // 2, ranks // 2
    # Of few values in many places, numpy's sort takes a third of its partition's time.
    ordered = np.sort(values, axis=1)
    low, high = ordered[:, below], ordered[:, above]
    return np.asarray(low + (high - low) // 2)


def _middle_of_measured(reduced: Ints) -> Ints:
    """Compute the lower median over the ranks of one clock that measured a step."""
    measured = reduced != NULL
    count = measured.sum(axis=1)
    ordered = np.sort(np.where(measured, reduced, LATEST), axis=1)
    middle = ordered[np.arange(len(ordered)), np.maximum(count - 1, 0) // 2]
    return np.where(count > 0, middle, NULL)

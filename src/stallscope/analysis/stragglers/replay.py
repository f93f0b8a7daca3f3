"""Replay the run's own steps without a fault.

No distribution is assumed: a faulty rank's arrivals are replaced by those of its healthy peers in the
same part of the run, and the maximum over the ranks is taken again. "Step time − imbalance" would
promise far too much, because the slowest of healthy ranks is late, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from weakref import WeakKeyDictionary

import numpy as np

from stallscope.arrays.blocks import NULL, Array, Block, Matrix
from stallscope.arrays.stats import Mean, evenly, mean_with_interval
from stallscope.arrays.types import Floats, Ints
from stallscope.words import Stage

from ..ledger.build import ranks_by_arrival
from ..ledger.ledger import Ledger
from .lateness import LateCells

#: Without a baseline, dispatching a step and a plain optimizer update are assumed to need 1 ± 1 ms each.
ASSUMED_MS = 1.0

# Map in parts of the run, so that slow drifts of all ranks are not attributed to one rank.
_WINDOWS = 10
_FEWEST_STEPS_PER_WINDOW = 100
# The healthy ranks' distribution is taken from at most this many of them.
_PEERS = 64


@dataclass(frozen=True)
class Replay:
    """n steps without a fault.

    ``last`` is when the last rank would be ready, nanoseconds. Quantile mapping fixes the mean of the
    mapped sample, although other steps would have another mean by chance. ``fixed`` restores that error:
    per step, the values put in minus the mean that they come from, weighted by how often they decide
    which rank is last.
    """

    last: Ints
    fixed: Floats

    def saved(self, ledger: Ledger) -> Ints:
        """Return by how much the last rank is ready earlier than in the run, per step."""
        return np.asarray(ledger.last - self.last)


def mean_saved(saved: Ints, fixed: Floats | None = None, uncertainty_ns: float = 0.0) -> Mean:
    """Return the mean that a replay saves per step, nanoseconds.

    Args:
        saved: per step.
        fixed: see Replay.
        uncertainty_ns: half the interval of the mean that it is compared with, a baseline's.
    """
    value = float(saved.mean()) if len(saved) else float("nan")
    scatter = mean_with_interval(saved if fixed is None else saved + fixed)
    if scatter.ci95 is None:
        return Mean(value, None)
    below, above = scatter.value - scatter.ci95[0], scatter.ci95[1] - scatter.value
    about = Mean(value, (value - below, value + above))
    return about.with_error(uncertainty_ns) if uncertainty_ns else about


def windows(steps: int) -> list[int]:
    """Return the edges of the parts into which a run is split for its replay."""
    parts = max(1, min(_WINDOWS, steps // _FEWEST_STEPS_PER_WINDOW))
    sizes = [len(part) for part in np.array_split(np.zeros(steps, bool), parts)]
    return [0, *np.cumsum(sizes).tolist()]


def last_without(ledger: Ledger, ranks: Sequence[int]) -> Ints:
    """Return when the last of the other ranks is ready, per step; NULL if there is none."""
    chosen = list(ranks)
    if not chosen:
        return ledger.last
    if len(chosen) == 1 and len(ledger.ranks) > 1:
        next_to_last = ledger.of("arrival", ledger.second)
        without = np.where(ledger.critical == chosen[0], next_to_last, ledger.last)
        return np.asarray(without, np.int64)
    return ledger.cells.per_step(_last_of, np.array(others(ledger, ranks), np.int64))


def others(ledger: Ledger, ranks: Sequence[int]) -> list[int]:
    """Return the positions of all other ranks."""
    return [rank for rank in range(len(ledger.ranks)) if rank not in set(ranks)]


def _last_of(block: Block, ranks: Ints) -> Ints:
    return np.asarray(block.of("arrival", ranks).max(axis=1, initial=NULL))


def _quantiles(of: Ints, count: int) -> Ints:
    """Return this many quantiles of all values, ascending."""
    ordered = np.sort(of, axis=None)
    return np.asarray(ordered[((np.arange(count) + 0.5) / count * len(ordered)).astype(int)])


def _mapped(values: Ints, quantiles: Ints, edges: Sequence[int]) -> Ints:
    """Replace each column's k-th smallest value by the k-th quantile, part by part.

    Values keep their steps, so delays that all ranks share in a step stay. Subtracting the mean excess
    instead fails on bursts.
    """
    result = np.empty(values.shape[::-1], np.int64).T
    for begin, end in pairwise(edges):
        for column, target in zip(values[begin:end].T, result[begin:end].T, strict=True):
            target[np.argsort(column)] = quantiles[begin:end]
    return result


def some_of(ranks: Sequence[int]) -> list[int]:
    """Choose enough of these ranks for a distribution or a mean, evenly spread."""
    return [ranks[index] for index in evenly(len(ranks), _PEERS)]


def without_faulty(
    ledger: Ledger, faulty: Sequence[int], healthy_ranks: Sequence[int] = ()
) -> Replay:
    """Replay the steps as if the faulty ranks were like their peers.

    Quantile mapping: a faulty rank's k-th smallest arrival becomes the matching quantile of the healthy
    ranks' pooled arrivals.

    Args:
        ledger: steady steps.
        faulty: positions of the ranks to fix.
        healthy_ranks: positions of the healthy ranks; empty for all others.
    """
    fixed_ranks = set(faulty)
    healthy = some_of(
        [rank for rank in healthy_ranks if rank not in fixed_ranks] or others(ledger, faulty)
    )
    if not len(faulty) or not healthy:
        return Replay(ledger.last, np.zeros(len(ledger)))
    edges, peers = windows(len(ledger)), _arrivals(ledger, tuple(healthy))
    as_healthy = ledger.cells.compute_by_ranks(
        _as_healthy, peers.quantiles, edges, ranks=list(faulty)
    )
    latest, who = as_healthy.gathered(_latest, "arrival")
    last = np.maximum(last_without(ledger, faulty), latest)
    decides = _shares(who[latest == last], len(faulty), len(ledger))
    fixed = as_healthy.per_step(_put_in, "arrival", decides, peers.means)
    return Replay(np.asarray(last, np.int64), fixed)


@dataclass(frozen=True)
class _Arrivals:
    """The arrivals of healthy ranks together."""

    #: Ascending within each part of the run, as many as it has steps.
    quantiles: Ints
    #: Per step.
    means: Floats


# All stragglers of a run are replayed with the same healthy ranks.
_ARRIVALS: WeakKeyDictionary[Matrix, dict[tuple[int, ...], _Arrivals]] = WeakKeyDictionary()


def _arrivals(ledger: Ledger, healthy: tuple[int, ...]) -> _Arrivals:
    known = _ARRIVALS.setdefault(ledger.cells, {})
    if healthy not in known:
        peers = ledger.cells.columns("arrival", healthy)
        parts = pairwise(windows(len(ledger)))
        quantiles = [_quantiles(peers[begin:end], end - begin) for begin, end in parts]
        known[healthy] = _Arrivals(np.concatenate(quantiles), peers.mean(axis=1))
    return known[healthy]


def _as_healthy(block: Block, quantiles: Ints, edges: Sequence[int]) -> dict[str, Array]:
    return {"arrival": _mapped(block["arrival"], quantiles, edges)}


def _latest(block: Block, name: str) -> tuple[Ints, Ints]:
    """Kernel: return the largest value per step, and the position of the first rank that has it."""
    values = block[name]
    return values.max(axis=1, initial=NULL), np.asarray(np.argmax(values, axis=1))


def _put_in(block: Block, name: str, decides: Floats, instead_of: Floats) -> Floats:
    """Kernel: return the values put in minus their mean, weighted by how often they decide."""
    return np.asarray((block[name] - instead_of[block.steps, None]) @ decides)


def _shares(who: Ints, ranks: int, steps: int) -> Floats:
    """Return per rank the share of steps in which it is the last."""
    return np.bincount(who, minlength=ranks) / max(steps, 1)


def without_lateness(ledger: Ledger, cells: LateCells) -> Ints:
    """Return when the last rank would be ready if these cells had not been late, per step."""
    last = ledger.last.copy()
    order = np.argsort(cells.step, kind="stable")
    late = (cells.step[order], cells.rank[order], cells.by[order])
    at, without = ledger.cells.gathered(_not_late, *late)
    last[at] = without
    return last


def _not_late(block: Block, step: Ints, rank: Ints, by: Ints) -> tuple[Ints, Ints]:
    """Kernel: return steps with late cells, and when the last rank would be ready without them."""
    inside = block.within(step)
    at, row = np.unique(step[inside], return_inverse=True)
    if not len(at):
        return at, at
    arrival = block["arrival"][at - block.steps.start]
    np.subtract.at(arrival, (row, rank[inside]), by[inside])
    return at, arrival.max(axis=1)


def with_usual_stage(
    ledger: Ledger, stage: Stage, fixed_last: Ints, healthy: Sequence[int]
) -> Ints:
    """Return when the last rank would be ready if a stage took no more than ASSUMED_MS, per step.

    Args:
        ledger: steady steps.
        stage: ``input`` or ``other``.
        fixed_last: when the last rank would be ready if the slow ranks were fixed.
        healthy: positions of all other ranks. A fixed rank arrives with them and gains as much.
    """
    chosen = np.array(healthy, np.int64)
    better = ledger.cells.per_step(_without_excess, stage, chosen)
    if len(chosen) == len(ledger.ranks):
        return better
    gained = ledger.cells.per_step(_last_of, chosen) - better
    return np.asarray(fixed_last - gained)


def _without_excess(block: Block, stage: Stage, ranks: Ints) -> Ints:
    """Kernel: return when the last of these ranks would be ready if the stage took the assumed time."""
    arrival = block.of("arrival", ranks)
    if stage == "other":
        better = block.of("input", ranks) + block.of("compute", ranks)
    else:
        better = arrival - block.of(stage, ranks)
    better += int(ASSUMED_MS * 1e6)
    np.minimum(better, arrival, out=better)
    return np.asarray(better.max(axis=1, initial=NULL))


# -- Let all stages of a pipeline work equally long, so that their ranks can be compared -----------

# More steps do not change a median.
_STEPS_FOR_LEVEL = 2000


def with_equal_stages(ledger: Ledger, stages: Sequence[tuple[int, ...]]) -> Ledger:
    """Lengthen compute of the shorter stages by a constant, up to the longest stage.

    A stage is as long as its fastest rank's median step: a slow rank of several with the same stages
    stays slow.

    Args:
        ledger: steady steps.
        stages: per rank, its stages; ranks with the same stages do the same work.
    """
    if len(stages) != len(ledger.ranks) or not len(ledger):
        return ledger
    sample = evenly(len(ledger), _STEPS_FOR_LEVEL)
    medians = np.concatenate(ledger.cells.by_ranks(_medians_of_ranks, sample))
    level: dict[tuple[int, ...], float] = {}
    for stage, median_ns in zip(stages, medians.tolist(), strict=True):
        level[stage] = min(median_ns, level.get(stage, median_ns))
    longest = max(level.values())
    longer = np.array([longest - level[stage] for stage in stages]).astype(np.int64)
    cells = ledger.cells.with_computed(("arrival", "compute"), _longer, longer)
    reference, second, critical, last = cells.gathered(_roles)
    fields = {name: getattr(ledger, name) for name in Ledger.__dataclass_fields__}
    level_fields = {
        "cells": cells,
        "reference": reference,
        "second": second,
        "critical": critical,
        "allreduce": ledger.total - last,
    }
    return Ledger(**{**fields, **level_fields})


def _medians_of_ranks(block: Block, sample: Ints) -> Floats:
    return np.asarray(np.median(block.at_steps("arrival", sample), axis=0))


def _longer(block: Block, name: str, longer: Ints) -> Array:
    return np.asarray(block[name] + longer[block.ranks])


def _roles(block: Block) -> tuple[Ints, Ints, Ints, Ints]:
    """Kernel: find the reference, second last and last ranks of each step, and the last arrival."""
    arrival = block["arrival"]
    roles = ranks_by_arrival(arrival, block["measured"], block.steps.start)
    return (*roles, arrival.max(axis=1, initial=NULL))

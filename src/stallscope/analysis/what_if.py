"""What fixing something gains: the run's own steps, replayed without the fault.

Nothing is assumed about distributions: a faulty rank's arrivals are replaced by what its healthy
peers needed in the same part of the run, and the maximum over the ranks is taken again. "Step time −
imbalance" would promise far too much: the slowest of healthy ranks is late, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .lateness import LateCells
from .ledger import Ledger
from .stats import Mean, mean_with_interval

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

#: Without a baseline, what dispatching a step and a plain optimizer update are taken to need.
ASSUMED_MS = 2.0

# Slow drifts that all ranks share must not be taken for a rank's own: map in parts of the run.
_WINDOWS = 10
_FEWEST_STEPS_PER_WINDOW = 100
# The healthy ranks' distribution is taken from this many of them at most.
_PEERS = 64


@dataclass(frozen=True)
class WhatIf:
    """A fix, the time per step that it saves, and the speed-up that follows.

    ``fix`` is ``input``, ``other``, ``allreduce``, ``imbalance``, ``rank:3``, ``host:NAME``,
    ``bandwidth:2`` or ``ranks:64``. ``extrapolated`` where the run itself cannot show it.
    ``mostly_ms`` is what nine in ten of the steps save at least, which says something even where steps
    are too much alike for an interval.
    """

    fix: str
    saved_ms: Mean
    speedup: float
    ci95: tuple[float, float] | None
    extrapolated: bool = False
    mostly_ms: float = 0.0


@dataclass(frozen=True)
class Replay:
    """The steps without a fault, n of them.

    ``last`` is when the last rank would be ready, nanoseconds. Mapping one sample to another fixes its
    mean, although n other steps would have had another one by chance: that error does not show in
    ``last``. ``fixed`` brings it back: per step what was put in, above what it was taken from,
    weighted by how often it decides who is last.
    """

    last: Ints
    fixed: Floats

    def saved(self, ledger: Ledger) -> Ints:
        """Per step, what the replay is ahead of the run."""
        return np.asarray(ledger.last - self.last)


def mean_saved(saved: Ints, fixed: Floats | None = None, unsure_ns: float = 0.0) -> Mean:
    """What a replay saves per step, nanoseconds.

    Args:
        saved: per step.
        fixed: see Replay.
        unsure_ns: half an interval of what it is held against, a baseline's mean.
    """
    value = float(saved.mean()) if len(saved) else float("nan")
    scatter = mean_with_interval(saved if fixed is None else saved + fixed)
    if scatter.ci95 is None:
        return Mean(value, None)
    below, above = scatter.value - scatter.ci95[0], scatter.ci95[1] - scatter.value
    about = Mean(value, (value - below, value + above))
    return about.minus(Mean(0.0, (-unsure_ns, unsure_ns))) if unsure_ns else about


def what_if(
    fix: str,
    ledger: Ledger,
    saved: Ints,
    fixed: Floats | None = None,
    unsure_ns: float = 0.0,
) -> WhatIf:
    """The gain of a fix that saves so many nanoseconds in every step (see mean_saved)."""
    step = float(ledger.total.mean())
    mean = mean_saved(saved, fixed, unsure_ns)

    def speedup(nanoseconds: float) -> float:
        return step / max(step - nanoseconds, 1.0)

    ci95 = None if mean.ci95 is None else (speedup(mean.ci95[0]), speedup(mean.ci95[1]))
    mostly = float(np.quantile(saved, 0.1)) / 1e6 if len(saved) else 0.0
    return WhatIf(fix, mean.scaled(1e-6), speedup(mean.value), ci95, mostly_ms=mostly)


def windows(steps: int) -> int:
    """Into how many parts a run is cut for its replay."""
    return max(1, min(_WINDOWS, steps // _FEWEST_STEPS_PER_WINDOW))


def last_without(ledger: Ledger, ranks: Sequence[int]) -> Ints:
    """Per step, when the last of the other ranks is ready; the earliest there is, if none is left."""
    chosen = list(ranks)
    if not chosen:
        return ledger.last
    if len(chosen) == 1 and len(ledger.ranks) > 1:
        next_to_last = ledger.of("arrival", ledger.second)
        without = np.where(ledger.critical == chosen[0], next_to_last, ledger.last)
        return np.asarray(without, np.int64)
    rest = np.ones(len(ledger.ranks), bool)
    rest[chosen] = False
    return np.asarray(ledger.arrival[:, rest].max(axis=1, initial=np.iinfo(np.int64).min))


def healed(ledger: Ledger, faulty: Sequence[int]) -> Ints:
    """n × len(faulty) arrivals of faulty ranks as healthy ones.

    Quantile mapping: a faulty rank's k-th smallest arrival becomes the matching quantile of the
    healthy ranks' pooled ones, in place, so that what is common to all ranks in a step stays.
    Subtracting the mean excess instead fails on bursts.
    """
    chosen = list(faulty)
    healthy = [rank for rank in range(len(ledger.ranks)) if rank not in set(chosen)]
    if not healthy:
        return ledger.arrival[:, chosen]
    peers = ledger.arrival[:, some_of(healthy)]
    own = ledger.arrival[:, chosen]
    parts = windows(len(ledger))
    return np.concatenate(
        [
            mapped(mine, theirs)
            for mine, theirs in zip(
                np.array_split(own, parts), np.array_split(peers, parts), strict=True
            )
        ]
    )


def mapped(values: Ints, to: Ints) -> Ints:
    """Every column's k-th smallest value replaced by the matching quantile of all values of ``to``."""
    n = len(values)
    ordered = np.sort(to, axis=None)
    quantiles = ordered[((np.arange(n) + 0.5) / n * len(ordered)).astype(int)]
    result = np.empty_like(values)
    for column, target in zip(values.T, result.T, strict=True):
        target[np.argsort(column)] = quantiles
    return result


def some_of(ranks: Sequence[int]) -> list[int]:
    """As many of these ranks as a distribution or a mean needs, evenly spread."""
    at = np.unique(np.linspace(0, len(ranks) - 1, min(len(ranks), _PEERS)).astype(int))
    return [ranks[index] for index in at]


def without_faulty(ledger: Ledger, faulty: Sequence[int]) -> Replay:
    """The steps as they would be if the faulty ranks were like their peers."""
    healthy = some_of([rank for rank in range(len(ledger.ranks)) if rank not in set(faulty)])
    if not len(faulty) or not healthy:
        return Replay(ledger.last, np.zeros(len(ledger)))
    as_healthy = healed(ledger, faulty)
    rest = last_without(ledger, faulty)
    last = np.maximum(rest, as_healthy.max(axis=1))
    decides = _shares(as_healthy, last)
    peers = ledger.arrival[:, healthy].mean(axis=1)
    return Replay(np.asarray(last, np.int64), (as_healthy - peers[:, None]) @ decides)


def _shares(arrival: Ints, last: Ints) -> Floats:
    """Per column, in which share of the steps it is the last one."""
    if not len(arrival):
        return np.zeros(arrival.shape[1])
    at = np.argmax(arrival, axis=1)
    decided = at[arrival[np.arange(len(at)), at] == last]
    return np.bincount(decided, minlength=arrival.shape[1]) / len(arrival)


def without_lateness(ledger: Ledger, cells: LateCells) -> Ints:
    """Per step, when the last rank would be ready if these cells had not been late."""
    last = ledger.last.copy()
    at, row = np.unique(cells.step, return_inverse=True)
    if len(at):
        arrival = ledger.arrival[at]
        np.subtract.at(arrival, (row, cells.rank), cells.by)
        last[at] = arrival.max(axis=1)
    return last


def with_stage_of(
    ledger: Ledger, stage: str, baseline: Ledger | None, healed_last: Ints, healthy: Sequence[int]
) -> Replay:
    """The steps as they would be if a stage took what it takes in the baseline.

    Without a baseline it may take ASSUMED_MS. Ranks that are none of ``healthy`` have faults of
    their own: in ``healed_last`` they are healed already.
    """
    chosen = list(healthy)
    arrival = ledger.arrival[:, chosen]
    own = getattr(ledger, stage)[:, chosen]
    fixed = np.zeros(len(ledger))
    if baseline is not None and len(baseline):
        peers = getattr(baseline, stage)[:, some_of(range(len(baseline.ranks)))]
        put_in = mapped(own, peers)
        better = arrival - own + put_in
        fixed = put_in @ _shares(better, better.max(axis=1, initial=np.iinfo(np.int64).min))
    else:
        better = arrival - np.maximum(own - int(ASSUMED_MS * 1e6), 0)
    if len(chosen) == len(ledger.ranks):
        return Replay(np.asarray(better.max(axis=1)), fixed)
    # A healed rank arrives with the healthy ones: it gains what they do.
    gained = arrival.max(axis=1) - better.max(axis=1)
    return Replay(np.asarray(healed_last - gained), fixed)

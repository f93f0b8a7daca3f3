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
from .stats import Mean, mean_of_replays, mean_with_interval

Ints = npt.NDArray[np.int64]

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
    """

    fix: str
    saved_ms: Mean
    speedup: float
    ci95: tuple[float, float] | None
    extrapolated: bool = False


def what_if(fix: str, ledger: Ledger, saved: Ints, unsure_ns: float = 0.0) -> WhatIf:
    """The gain of a fix that saves so many nanoseconds in every step.

    Args:
        unsure_ns: half an interval of what it is held against, a baseline's mean.
    """
    step = float(ledger.total.mean())
    mean = mean_of_replays(saved, windows(len(saved)))
    mean = mean.minus(Mean(0.0, (-unsure_ns, unsure_ns)))

    def speedup(nanoseconds: float) -> float:
        return step / max(step - nanoseconds, 1.0)

    ci95 = None if mean.ci95 is None else (speedup(mean.ci95[0]), speedup(mean.ci95[1]))
    return WhatIf(fix, mean.scaled(1e-6), speedup(mean.value), ci95)


def windows(steps: int) -> int:
    """Into how many parts a run is cut for its replay."""
    return max(1, min(_WINDOWS, steps // _FEWEST_STEPS_PER_WINDOW))


def last_without(ledger: Ledger, ranks: Sequence[int]) -> Ints:
    """Per step, when the last of the other ranks is ready; the earliest there is, if none is left."""
    chosen = list(ranks)
    if not chosen:
        return ledger.last
    if len(chosen) == 1 and len(ledger.ranks) > 1:
        next_to_last = ledger.of(ledger.arrival, ledger.second)
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


def without_faulty(ledger: Ledger, faulty: Sequence[int]) -> Ints:
    """Per step, when the last rank would be ready if the faulty ones were like their peers."""
    if not len(faulty):
        return ledger.last
    as_healthy = healed(ledger, faulty).max(axis=1)
    return np.asarray(np.maximum(last_without(ledger, faulty), as_healthy), np.int64)


def unsure_of_peers(ledger: Ledger, faulty: Sequence[int]) -> float:
    """Half the 95 % interval of what healthy ranks need on average, nanoseconds.

    A replay takes the few healthy ranks' sample for their distribution; its own error does not show in
    what the replay saves from step to step. What all ranks share in a step is no error.
    """
    healthy = some_of([rank for rank in range(len(ledger.ranks)) if rank not in set(faulty)])
    if not healthy or not len(faulty):
        return 0.0
    ranks = len(ledger.ranks)
    own = ledger.arrival[:, healthy].mean(axis=1) - ledger.arrival.mean(axis=1)
    mean = mean_with_interval(own)
    half = 0.0 if mean.ci95 is None else (mean.ci95[1] - mean.ci95[0]) / 2
    return half * float(np.sqrt(ranks / (ranks - 1)))


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
    ledger: Ledger, stage: str, baseline: Ledger | None, healthy_last: Ints, healthy: Sequence[int]
) -> Ints:
    """Per step, when the last rank would be ready if a stage took what it takes in the baseline.

    Without a baseline it may take ASSUMED_MS. Ranks that are none of ``healthy`` have faults of
    their own: in ``healthy_last`` they are healed already.
    """
    chosen = list(healthy)
    arrival = ledger.arrival[:, chosen]
    own = getattr(ledger, stage)[:, chosen]
    if baseline is not None and len(baseline):
        peers = getattr(baseline, stage)[:, some_of(range(len(baseline.ranks)))]
        better = arrival - own + mapped(own, peers)
    else:
        better = arrival - np.maximum(own - int(ASSUMED_MS * 1e6), 0)
    rest = [rank for rank in range(len(ledger.ranks)) if rank not in set(chosen)]
    if not rest:
        return np.asarray(better.max(axis=1))
    # A healed rank arrives with the healthy ones: it gains what they do.
    gained = arrival.max(axis=1) - better.max(axis=1)
    return np.asarray(healthy_last - gained)

"""Estimate what ranks that share CPU cores cost each other: slow ranks, busy loaders, and waiting.

A rank that burns CPU in several threads, in its loader or between steps, slows its peers' work. Fixing
it makes its peers faster, too. A replay that gives the slow rank its peers' arrivals misses that.

The effect is visible if the fault lasts longer in some steps than in others: a fault that takes cores
makes peers ready later in the longer ones. The slope of the peers' arrival over the fault's duration is
the share of the fault that they lose. A fault that sleeps has a slope of 0 or below.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from stallscope.arrays.stats import Mean, mean_with_interval
from stallscope.arrays.types import Floats

from ..ledger.ledger import Ledger
from ..setup import CoreUse, CpuLoad
from ..stragglers.lateness import Straggler
from ..stragglers.loaders import late_batches
from ..stragglers.replay import some_of
from .baseline_replay import ALLREDUCE_AFTER_WAITING

_NOTHING = Mean(0.0, (0.0, 0.0))
# The stages up to the end of each stage before compute. In compute the work itself varies on all ranks
# alike, so a slope shows nothing.
_UNTIL = {"other": ("other",), "input": ("other", "input")}
# If the fault outlasts its peers in more steps than this, its duration does not determine theirs.
_FEW = 0.05
# This quantile of allreduce is what it takes at best.
_FASTEST = 0.05


def sped_up_peers(
    ledger: Ledger, straggler: Straggler, named: Collection[int], load: CpuLoad
) -> Mean:
    """Return the nanoseconds per step by which other ranks are ready earlier once a straggler is fixed.

    If the slope may be 0, the mean is 0 and the interval contains the possible effect. If the fault
    outlasts its peers, the slope shows only that it takes cores. Then the result is the most that a
    fault with as many threads as the machine has cores can take.

    Args:
        ledger: steady steps.
        straggler: a straggler on the machine.
        named: all slow ranks.
        load: the load of the run's only machine.
    """
    slow = [at for at, rank in enumerate(ledger.ranks) if rank in straggler.ranks]
    peers = some_of([at for at, rank in enumerate(ledger.ranks) if rank not in named])
    if straggler.stage not in _UNTIL or not slow or not peers:
        return _NOTHING
    fault, arrival = _mean_of(ledger, straggler.stage, slow), _mean_of(ledger, "arrival", peers)
    share = _slope(fault, arrival)
    if share.ci95 is None or share.ci95[1] <= 0:
        return _NOTHING
    longer = max(0.0, float((fault - _mean_of(ledger, straggler.stage, peers)).mean()))
    ends = np.sum([_mean_of(ledger, stage, slow) for stage in _UNTIL[straggler.stage]], axis=0)
    outlasts = (ends > arrival).mean() > _FEW
    most = load.most_taken * min(longer, float(arrival.mean()))
    if share.ci95[0] <= 0:
        possible = most if outlasts else min(most, share.ci95[1] * longer)
        return Mean(0.0, (-possible, possible))
    return Mean(most, (most, most)) if outlasts else share.scaled(longer)


def faster_peers_ms(
    ledger: Ledger, stragglers: Sequence[Straggler], cores: CoreUse
) -> dict[Straggler, Mean]:
    """Return the milliseconds per step by which other ranks become faster once each straggler is fixed.

    The result is empty if ranks share no cores or are on several machines.
    """
    if cores.machine is None:
        return {}
    named = {rank for straggler in stragglers for rank in straggler.ranks}
    return {
        straggler: sped_up_peers(ledger, straggler, named, cores.machine).scaled(1e-6)
        for straggler in stragglers
    }


def idle_loaders_ms(ledger: Ledger, cores: CoreUse) -> tuple[float, float]:
    """Return what compute and allreduce may gain from idle loaders, milliseconds per step.

    Busy loaders take CPU cores from the ranks, but loaders that wait for data do not. The run does not
    show which they do.

    Args:
        ledger: steady steps.
        cores: how the ranks use CPU cores.

    Returns:
        The gain in steps with late batches, in which a loader is busy all the time, and the most that
        all steps may gain: a loader that keeps up may be just as busy.
    """
    if not cores.taken_by_loaders:
        return 0.0, 0.0
    slowed = cores.taken_by_loaders * (ledger.by_cause("compute") + ledger.allreduce) / 1e6
    return float(slowed[late_batches(ledger)].sum()) / len(ledger), float(slowed.mean())


def shorter_allreduce_ms(saved_ms: float, ledger: Ledger, cores: CoreUse) -> float:
    """Return the most by which a fix shortens allreduce, milliseconds per step.

    Ranks that share cores reduce more slowly after they have waited. How much more slowly, the run shows
    only as far as some of its waits are short.

    Args:
        saved_ms: the milliseconds per step that the fix saves otherwise.
        ledger: steady steps.
        cores: how the ranks use CPU cores.
    """
    if not cores.shared:
        return 0.0
    waiting, allreduce = ledger.imbalance / 1e6, ledger.allreduce / 1e6
    slope = _slope(waiting, allreduce).ci95 or (0.0, 0.0)
    share = max(ALLREDUCE_AFTER_WAITING, slope[1])
    shorter_wait = max(0.0, min(saved_ms, float(waiting.mean())))
    # It never becomes shorter than the run's fastest reductions.
    most = float(allreduce.mean() - np.quantile(allreduce, _FASTEST))
    return min(most, share * shorter_wait)


def _mean_of(ledger: Ledger, name: str, ranks: Sequence[int]) -> Floats:
    return ledger.cells.mean_of(name, ranks)


def _slope(x: Floats, y: Floats) -> Mean:
    """Return the slope of y over x, with an interval that allows for autocorrelated steps."""
    dx, dy = x - x.mean(), y - y.mean()
    variance = float((dx**2).mean())
    if variance <= 0:
        return Mean(0.0, None)
    slope = float((dx * dy).mean()) / variance
    error = mean_with_interval(dx * (dy - slope * dx) / variance)
    if error.ci95 is None:
        return Mean(slope, None)
    return Mean(slope, (slope + error.ci95[0], slope + error.ci95[1]))

"""Who is late now and then: cells of step × rank in which a stage took far longer than it usually does.

Persistent slowness is the lap test's affair. Here every stage is held against what it usually takes,
so that a loader's hiccup shows although the noise of compute is larger. Cells that pile up on one rank
or host are bursts (garbage collection, checkpoints, a noisy neighbour); cells that move around from
rank to rank name nobody.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import stats as scipy_stats

from .lap_test import ALPHA
from .ledger import STAGES, Ledger
from .stats import Floats

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

# Late is what lies this many SDs (of logarithms: noise of stages is skewed) above the usual, and is
# worth mentioning in a step.
_LATE_SDS = 5.0
_SMALLEST_SHARE = 0.01
_CHANCE_PER_STEP = 0.01
# The usual is taken over so many ranks and steps at most: more do not change it.
_PEERS = 64
_STEPS_FOR_USUAL = 2000
# From so many ranks on the typical peer is hardly ever late itself.
_RANKS_FOR_PEERS = 8
_FEWEST_EPISODES = 2
# Quantiles of the lower half say what is usual even where half of the values are late.
_LOW, _LOWER = 0.20, 0.05
_LOW_TO_SD = 1 / float(scipy_stats.norm.ppf(_LOW) - scipy_stats.norm.ppf(_LOWER))


@dataclass(frozen=True)
class LateCells:
    """Late cells of the tested ranks: per stage masks n × T and by how much, nanoseconds n × T.

    ``late`` is beyond doubt: it decides who is named. ``likely`` holds these and all others that are
    hardly chance: once there is a fault, they are counted as its work, or its size would be too small.
    """

    tested: tuple[int, ...]
    late: dict[str, Bools]
    likely: dict[str, Bools]
    #: By how much a stage took longer than it usually does on this rank; meant where late.
    by: dict[str, Ints]

    def any(self) -> Bools:
        """n × T: late in any stage."""
        return np.asarray(np.logical_or.reduce(list(self.late.values())))

    def of(self, ranks: Sequence[int]) -> LateCells:
        """The same for some of the tested ranks."""
        if tuple(ranks) == self.tested:
            return self
        at = [self.tested.index(rank) for rank in ranks if rank in set(self.tested)]
        return LateCells(
            tuple(self.tested[index] for index in at),
            {stage: mask[:, at] for stage, mask in self.late.items()},
            {stage: mask[:, at] for stage, mask in self.likely.items()},
            {stage: by[:, at] for stage, by in self.by.items()},
        )

    def only(self, stage: str) -> LateCells:
        """The same for one stage."""
        late, likely = (
            {s: mask if s == stage else np.zeros_like(mask) for s, mask in masks.items()}
            for masks in (self.late, self.likely)
        )
        return LateCells(self.tested, late, likely, self.by)

    def lateness(self, ranks: Sequence[int]) -> Ints:
        """n × len(ranks): nanoseconds that late stages of these tested ranks took too long."""
        chosen = list(ranks)
        parts = [np.where(self.likely[s][:, chosen], self.by[s][:, chosen], 0) for s in STAGES]
        return np.asarray(np.sum(parts, axis=0))

    def stage(self, ranks: Sequence[int]) -> str:
        """The stage in which these tested ranks lost most."""
        chosen = list(ranks)
        lost = {s: int(self.by[s][:, chosen][self.likely[s][:, chosen]].sum()) for s in STAGES}
        return max(lost, key=lost.__getitem__)


def late_cells(ledger: Ledger, tested: Sequence[int]) -> LateCells:
    """Cells in which a stage of a tested rank took far longer than its peers' and than usual."""
    chosen = list(tested)
    smallest = _SMALLEST_SHARE * float(ledger.total.mean())
    late: dict[str, Bools] = {}
    likely: dict[str, Bools] = {}
    by: dict[str, Ints] = {}
    for stage in STAGES:
        values = getattr(ledger, stage)
        values = values if len(chosen) == values.shape[1] else values[:, chosen]
        late[stage], likely[stage], by[stage] = _late(values, smallest)
        late[stage] &= ledger.measured[:, chosen]
        likely[stage] &= ledger.measured[:, chosen]
    return LateCells(tuple(chosen), late, likely, by)


def _late(values: Ints, smallest: float) -> tuple[Bools, Bools, Ints]:
    n, ranks = values.shape
    some = np.unique(np.linspace(0, ranks - 1, min(ranks, _PEERS)).astype(int))
    low = (len(some) - 1) // 2
    peer = np.partition(np.ascontiguousarray(values[:, some]), low, axis=1)[:, low]
    sample = np.unique(np.linspace(0, n - 1, min(n, _STEPS_FOR_USUAL)).astype(int))
    by = values - peer[:, None]
    # Of two ranks one is the peer, and the other may be late in half of the steps.
    at = 0.5 if ranks > 2 else 0.25
    usual = np.quantile(by[sample], at, axis=0).astype(np.int64)
    by -= usual

    def size(nanoseconds: Ints) -> npt.NDArray[np.float32]:
        # Stages of next to nothing vary by large factors that mean nothing.
        return np.log(np.maximum(nanoseconds, 0) + smallest, dtype=np.float32)

    spread = float(np.median(_low_spread(size(values[sample]))))
    if ranks >= _RANKS_FOR_PEERS:
        # What all ranks have in common is no lateness; with few ranks the peer is late itself.
        own = size(values[sample]) - size(peer[sample])[:, None]
        spread = min(spread, float(np.median(_low_spread(own))))
    over = size(values - usual) - size(peer)[:, None]
    # So many that chance makes one of the ranks likely late in one step of a hundred.
    hardly_chance = float(scipy_stats.norm.isf(_CHANCE_PER_STEP / ranks))
    counts = by > smallest
    late = counts & (over > _LATE_SDS * spread)
    return late, counts & (over > min(_LATE_SDS, hardly_chance) * spread), by


def _low_spread(values: npt.NDArray[np.float32]) -> Floats:
    low, lower = np.quantile(values, (_LOW, _LOWER), axis=0)
    return np.asarray((low - lower) * _LOW_TO_SD)


def piled_up(episodes: Ints) -> tuple[int, ...]:
    """Those whose share of the late episodes is more than chance gives one of so many.

    Args:
        episodes: per rank (or host), how often it was late.
    """
    named: list[int] = []
    left = list(range(len(episodes)))
    while len(left) > 1:
        most = max(left, key=lambda index: int(episodes[index]))
        total = int(episodes[left].sum())
        chance = len(left) * scipy_stats.binom.sf(episodes[most] - 1, total, 1 / len(left))
        if episodes[most] < _FEWEST_EPISODES or chance >= ALPHA:
            break
        named.append(most)
        left.remove(most)
    return tuple(sorted(named))


def episodes(late: Bools, tau: float) -> Bools:
    """Blocks × ranks: late at least once in a block of 2τ steps, which is one episode."""
    length = max(1, int(np.ceil(2 * tau)))
    return np.asarray(np.logical_or.reduceat(late, np.arange(0, len(late), length), axis=0))

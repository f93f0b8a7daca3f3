"""Who is late at times: cells of step × rank in which a stage took far longer than it usually does.

Persistent slowness is the lap test's affair. Here every stage is held against what it usually takes,
so that a loader's hiccup shows although the noise of compute is larger. Cells that pile up on one rank
or host are bursts (garbage collection, checkpoints, a noisy neighbour); cells that move around from
rank to rank name no rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from stallscope.arrays.blocks import Block, on_all_cores, ranks_of
from stallscope.arrays.lazy_scipy import optimize, scipy_stats
from stallscope.arrays.types import Bools, Floats, Ints

from ..ledger.ledger import STAGES, Ledger
from .lap_test import ALPHA

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
# One rank is late twice as often as another on healthy machines, too: cores differ in what else they do.
_HEALTHY_RATIO = 2.0
# A smaller part does not show the whole.
_LEAST_SEEN = 0.3
# Where a stage varies by any factor, no lateness is beyond doubt; as a whole number a century will do.
_FOREVER_NS = 3e18
# Quantiles of the lower half say what is usual even where half of the values are late.
_LOW, _LOWER = 0.20, 0.05
_LOW_TO_SD = 1 / (NormalDist().inv_cdf(_LOW) - NormalDist().inv_cdf(_LOWER))


@dataclass(frozen=True)
class LateCells:
    """Cells of step × rank in which a stage was late: one entry each, m in all.

    ``sure`` cells are beyond doubt: without any there is no fault that varies from step to step. The
    others are hardly chance: they are counted as a fault's work, or its size would come out too
    small.
    """

    #: Positions of step and rank, and the index of the stage in STAGES.
    step: Ints
    rank: Ints
    stage: Ints
    #: Nanoseconds by which the stage took longer than its peers' in that step and than usual.
    by: Ints
    sure: Bools
    #: Nanoseconds from which on the cell counts, and the standard deviation of the noise around it.
    limit: Ints
    noise: Floats

    def __len__(self) -> int:
        return len(self.step)

    def take(self, chosen: Bools) -> LateCells:
        """The same for some of the cells."""
        return LateCells(*(getattr(self, name)[chosen] for name in self.__dataclass_fields__))

    def of_ranks(self, ranks: Sequence[int]) -> LateCells:
        """The cells of ranks at these positions."""
        return self.take(np.isin(self.rank, list(ranks)))

    def of_stage(self, stage: str) -> LateCells:
        """The cells of a stage."""
        return self.take(self.stage == STAGES.index(stage))

    def typical(self) -> tuple[float, float]:
        """Nanoseconds by which late cells are late, and the share of them that are seen here.

        Only what lies above the limit is seen; where noise is not small against that, the mean of what
        is seen is too large. Taken as the upper part of a normal distribution, it gives the whole.
        """
        mean, limit = float(self.by.mean()), float(np.median(self.limit))
        noise = max(float(np.median(self.noise)), 1.0)

        def above(whole: float) -> float:
            z = (whole - limit) / noise
            ratio = np.exp(scipy_stats.norm.logpdf(z) - scipy_stats.norm.logcdf(z))
            return float(whole + noise * ratio - mean)

        lowest = limit - 3 * noise
        if above(lowest) >= 0:
            return mean, 1.0
        whole = float(optimize.brentq(above, lowest, mean))
        seen = float(scipy_stats.norm.cdf((whole - limit) / noise))
        return (whole, seen) if seen >= _LEAST_SEEN else (mean, 1.0)

    @property
    def worst_stage(self) -> str:
        """The stage that lost most."""
        lost = np.bincount(self.stage, self.by, minlength=len(STAGES))
        return STAGES[int(lost.argmax())]


def late_cells(ledger: Ledger, tested: Sequence[int]) -> LateCells:
    """Cells in which a stage of a tested rank took far longer than its peers' and than usual."""
    smallest = _SMALLEST_SHARE * float(ledger.total.mean())
    ranks, n = np.array(tested, np.int64), len(ledger)
    some = ranks[np.unique(np.linspace(0, len(ranks) - 1, min(len(ranks), _PEERS)).astype(int))]
    (peers,) = ledger.cells.gathered(_lower_medians, some)
    sample = np.unique(np.linspace(0, n - 1, min(n, _STEPS_FOR_USUAL)).astype(int))

    def is_usual(stage: str, peer: Ints) -> _Usual:
        values = ranks_of(ledger.cells.rows(stage, sample), ranks)
        return _Usual.of(values, peer[sample], smallest)

    usual = on_all_cores(lambda own: is_usual(*own), list(zip(STAGES, peers, strict=True)))
    limits = np.array([own.limit(peer) for own, peer in zip(usual, peers, strict=True)])
    late = ledger.cells.by_steps(_late, ranks, peers, [own.usual for own in usual], limits)
    parts = []
    for index, (own, found) in enumerate(zip(usual, zip(*late, strict=True), strict=True)):
        step, rank, by = (np.concatenate(one) for one in zip(*found, strict=True))
        order = np.lexsort((step, rank))
        step, rank, by = step[order], rank[order], by[order]
        peer = peers[index, step]
        sure, noise = by > own.limit(peer, _LATE_SDS), own.noise(peer)
        stage = np.full(len(step), index)
        parts.append(LateCells(step, rank, stage, by, sure, limits[index, step], noise))
    return joined(parts)


def joined(parts: Sequence[LateCells]) -> LateCells:
    """All cells of several, at least one."""
    names = LateCells.__dataclass_fields__
    return LateCells(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


@dataclass(frozen=True)
class _Usual:
    """How a stage usually is: per rank against its peers, and by how much it varies."""

    usual: Ints
    #: The standard deviation of its logarithm.
    spread: float
    smallest: float

    @classmethod
    def of(cls, values: Ints, peer: Ints, smallest: float) -> _Usual:
        # Of two ranks one is the peer, and the other may be late in half of the steps.
        at = 0.5 if values.shape[1] > 2 else 0.25
        # Rank by rank, as they lie: their steps are next to each other.
        usual = np.quantile((values - peer[:, None]).T, at, axis=1).astype(np.int64)
        return cls(usual, _spread(values, peer, smallest), smallest)

    def limit(self, peer: Ints, sds: float | None = None) -> Ints:
        """Nanoseconds from which on a stage is late where the peer's takes so long."""
        if sds is None:
            # So many that chance makes one of the ranks late in one step of a hundred.
            chance = float(scipy_stats.norm.isf(_CHANCE_PER_STEP / len(self.usual)))
            sds = min(_LATE_SDS, chance)
        # So many SDs of the logarithm above the peer; stages of next to nothing vary by large factors.
        above = (np.maximum(peer, 0) + self.smallest) * np.expm1(sds * self.spread)
        return np.asarray(np.clip(above, self.smallest, _FOREVER_NS), np.int64)

    def noise(self, peer: Ints) -> Floats:
        return np.asarray(self.spread * (np.maximum(peer, 0) + self.smallest))


def _lower_medians(block: Block, ranks: Ints) -> tuple[Ints]:
    """Stages × steps: the lower median of these ranks."""
    low = (len(ranks) - 1) // 2
    values = (np.ascontiguousarray(block.of(stage, ranks)) for stage in STAGES)
    return (np.array([np.partition(one, low, axis=1)[:, low] for one in values]),)


def _late(
    block: Block, ranks: Ints, peers: Ints, usual: Sequence[Ints], limits: Ints
) -> list[tuple[Ints, Ints, Ints]]:
    """Per stage the steps, ranks and lateness of cells above the limit."""
    # Of all ranks, as they lie: nearly all of them are tested, and picking them would copy them.
    counts = np.zeros(len(block.ranks), bool)
    counts[ranks] = True
    counts = block["measured"] & counts
    as_usual = np.zeros(len(block.ranks), np.int64)
    found = []
    for stage, peer, own, limit in zip(STAGES, peers, usual, limits, strict=True):
        as_usual[ranks] = own
        by = block[stage] - peer[block.steps, None]
        by -= as_usual
        rank, step = np.nonzero(((by > limit[block.steps, None]) & counts).T)
        found.append((step + block.steps.start, rank, by[step, rank]))
    return found


def _spread(values: Ints, peer: Ints, smallest: float) -> float:
    """The standard deviation of the logarithm of a stage, as it usually is."""

    def size(nanoseconds: Ints) -> Floats:
        return np.asarray(np.log(np.maximum(nanoseconds, 0) + smallest))

    spread = float(np.median(_low_spread(size(values))))
    ranks = values.shape[1]
    # The typical one of a few peers scatters itself.
    spread *= float(np.sqrt(1 + 1 / (ranks - 1)))
    if ranks >= _RANKS_FOR_PEERS:
        # What all ranks have in common is no lateness; with few ranks the peer is late itself.
        spread = min(spread, float(np.median(_low_spread(size(values) - size(peer)[:, None]))))
    return spread


def _low_spread(values: Floats) -> Floats:
    low, lower = np.quantile(values.T, (_LOW, _LOWER), axis=1)
    return np.asarray((low - lower) * _LOW_TO_SD)


def piled_up(episodes: Ints, looks: int = 1) -> tuple[int, ...]:
    """Those whose share of the late episodes is more than chance gives one of so many, who may be late
    twice as often as the others.

    Args:
        episodes: per rank (or host), how often it was late.
        looks: how many times this is asked in a run, which share the false alarms.
    """
    named: list[int] = []
    left = list(range(len(episodes)))
    while len(left) > 1:
        most = max(left, key=lambda index: int(episodes[index]))
        total = int(episodes[left].sum())
        share = _HEALTHY_RATIO / (len(left) - 1 + _HEALTHY_RATIO)
        chance = len(left) * scipy_stats.binom.sf(episodes[most] - 1, total, share)
        if episodes[most] < _FEWEST_EPISODES or chance >= ALPHA / looks:
            break
        named.append(most)
        left.remove(most)
    return tuple(sorted(named))


@dataclass(frozen=True)
class Episodes:
    """Blocks of 2τ steps in which a rank was late at least once: each is one episode."""

    block: Ints
    rank: Ints

    def per_rank(self, ranks: Sequence[int]) -> Ints:
        """How many episodes each of these ranks had."""
        chosen = list(ranks)
        count = np.bincount(self.rank, minlength=max(chosen, default=0) + 1)
        return np.asarray(count[chosen])

    def per_host(self, hosts: Sequence[Sequence[int]]) -> Ints:
        """In how many blocks most ranks of each host were late together.

        Args:
            hosts: the ranks of every host. One with a single rank cannot be distinguished from that
                rank: 0.
        """
        return np.array([self._together(ranks) if len(ranks) > 1 else 0 for ranks in hosts])

    def _together(self, ranks: Sequence[int]) -> int:
        blocks = self.block[np.isin(self.rank, list(ranks))]
        _, count = np.unique(blocks, return_counts=True)
        return int((2 * count > len(ranks)).sum())


def episodes(cells: LateCells, tau: float) -> Episodes:
    """The cells, counted in episodes."""
    length = max(1, int(np.ceil(2 * tau)))
    pairs = np.stack([cells.step // length, cells.rank])
    block, rank = np.unique(pairs, axis=1)
    return Episodes(block, rank)

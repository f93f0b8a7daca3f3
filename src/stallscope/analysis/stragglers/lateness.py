"""Find late cells: steps of a rank in which a stage took far longer than usual; define stragglers.

The lap test finds persistent slowness. Here every stage is compared with its usual time, so that a
loader's hiccup shows although the noise of compute is larger. Late cells that concentrate on one rank or
host are bursts (garbage collection, checkpoints, a noisy neighbour); those that vary from rank to rank
name no rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from stallscope.arrays.blocks import Block
from stallscope.arrays.distributions import (
    binomial_tail,
    mean_of_truncated,
    mills_ratio,
    normal_probability,
    normal_quantile,
)
from stallscope.arrays.stats import Mean, evenly, quantile, quantiles
from stallscope.arrays.types import Bools, Floats, Ints
from stallscope.words import STAGES, Fix, Pattern, Stage

from ..ledger.ledger import Ledger
from .lap_test import ALPHA

# A stage is late if it is this many SDs above usual (of logarithms, because noise is skewed), and by
# enough to matter in a step.
_LATE_SDS = 5.0
_SMALLEST_SHARE = 0.01
_CHANCE_PER_STEP = 0.01
# The usual time is taken over at most this many ranks and steps: more do not change it.
_PEERS = 64
_STEPS_FOR_USUAL = 2000
# With this many ranks, the typical peer is hardly ever late itself.
_RANKS_FOR_PEERS = 8
_FEWEST_EPISODES = 2
# On healthy machines, too, one rank is late twice as often as another: cores have other work.
_HEALTHY_RATIO = 2.0
# A smaller share above the limit does not determine the distribution.
_LEAST_SEEN = 0.3
# If a stage varies without limit, nothing is late: use a century.
_FOREVER_NS = 3e18
# Quantiles of the lower half show the usual time even if half of the values are late.
_LOW, _LOWER = 0.20, 0.05
_LOW_TO_SD = 1 / (NormalDist().inv_cdf(_LOW) - NormalDist().inv_cdf(_LOWER))


@dataclass(frozen=True)
class LateCells:
    """Cells of step × rank in which a stage was late: one entry each, m in all.

    ``sure`` cells are significant: without any there is no fault that varies from step to step. The
    others are probably not chance. They count towards a fault, or its size would be underestimated.
    """

    #: Positions of step and rank, and the index of the stage in STAGES.
    step: Ints
    rank: Ints
    stage: Ints
    #: How much longer the stage took than its peers' in that step, and than usual, nanoseconds.
    by: Ints
    sure: Bools
    #: The limit above which the cell is late, nanoseconds, and the standard deviation of its noise.
    limit: Ints
    noise: Floats

    def __len__(self) -> int:
        return len(self.step)

    def take(self, chosen: Bools) -> LateCells:
        """Return the chosen cells."""
        return LateCells(*(getattr(self, name)[chosen] for name in self.__dataclass_fields__))

    def of_ranks(self, ranks: Sequence[int]) -> LateCells:
        """Return the cells of ranks at these positions."""
        return self.take(np.isin(self.rank, list(ranks)))

    def of_stage(self, stage: Stage) -> LateCells:
        """Return the cells of a stage."""
        return self.take(self.stage == STAGES.index(stage))

    def certain(self, blind_ns: float) -> LateCells:
        """Leave out work between steps that is late by less than the error of clocks and completions.

        It starts when the first rank completes the step before; the other stages are on one clock.
        """
        return self.take((self.stage != STAGES.index("other")) | (self.by >= blind_ns))

    def largest(self) -> LateCells:
        """Leave out cells that are late by less than half of the mean."""
        return self.take(self.by >= 0.5 * self.by.mean()) if len(self) else self

    def typical(self) -> tuple[float, float]:
        """Estimate how late late cells are, nanoseconds, and which share of them is above the limit.

        The mean above the limit is too large if noise is large. So the cells are fitted as the upper
        part of a normal distribution.
        """
        mean, limit = float(self.by.mean()), float(np.median(self.limit))
        noise = max(float(np.median(self.noise)), 1.0)

        if limit - 3 * noise + noise * mills_ratio(-3.0) >= mean:
            return mean, 1.0
        whole = mean_of_truncated(mean, limit, noise)
        seen = float(normal_probability((whole - limit) / noise))
        return (whole, seen) if seen >= _LEAST_SEEN else (mean, 1.0)

    @property
    def worst_stage(self) -> Stage:
        """Return the stage with the most lateness."""
        lost = np.bincount(self.stage, self.by, minlength=len(STAGES))
        return STAGES[int(lost.argmax())]


def late_cells(ledger: Ledger, tested: Sequence[int]) -> LateCells:
    """Find cells in which a stage of a tested rank took far longer than its peers' and than usual."""
    smallest = _SMALLEST_SHARE * float(ledger.total.mean())
    ranks = np.array(tested, np.int64)
    some = ranks[evenly(len(ranks), _PEERS)]
    (peers,) = ledger.cells.gathered(_lower_medians, some)
    sample = evenly(len(ledger), _STEPS_FOR_USUAL)
    usual = _Usual.of_stages(ledger, ranks, sample, peers[:, sample], smallest)
    limits = np.array([times.limit(peer) for times, peer in zip(usual, peers, strict=True)])
    late = ledger.cells.by_steps(_late, ranks, peers, [times.usual for times in usual], limits)
    parts = []
    for index, (times, blocks) in enumerate(zip(usual, zip(*late, strict=True), strict=True)):
        step, rank, by = (np.concatenate(columns) for columns in zip(*blocks, strict=True))
        order = np.lexsort((step, rank))
        step, rank, by = step[order], rank[order], by[order]
        peer = peers[index, step]
        sure, noise = by > times.limit(peer, _LATE_SDS), times.noise(peer)
        stage = np.full(len(step), index)
        parts.append(LateCells(step, rank, stage, by, sure, limits[index, step], noise))
    return joined(parts)


def joined(parts: Sequence[LateCells]) -> LateCells:
    """Concatenate late cells."""
    names = LateCells.__dataclass_fields__
    return LateCells(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


@dataclass(frozen=True)
class _Usual:
    """The usual time of a stage: per rank relative to its peers, and its spread."""

    usual: Ints
    #: The standard deviation of its logarithm.
    spread: float
    smallest: float

    @classmethod
    def of_stages(
        cls, ledger: Ledger, ranks: Ints, sample: Ints, peers: Ints, smallest: float
    ) -> list[_Usual]:
        """Return the usual times of each stage.

        Args:
            ledger: steady steps.
            ranks: positions of the tested ranks.
            sample: positions of some steps, ascending.
            peers: the peers' times in these steps, stages × steps.
            smallest: the smallest lateness that matters, nanoseconds.
        """
        # With two ranks, one is the peer, and the other may be late in half of the steps.
        at = 0.5 if len(ranks) > 2 else 0.25
        blocks = ledger.cells.by_ranks(
            _usual_of_ranks, sample, peers, at, smallest, ranks=ranks.tolist()
        )
        usual, absolute, relative = (
            np.concatenate(parts, axis=1) for parts in zip(*blocks, strict=True)
        )
        return [
            cls(usual[index].astype(np.int64), _spread(absolute[index], relative[index]), smallest)
            for index in range(len(STAGES))
        ]

    def limit(self, peer: Ints, sds: float | None = None) -> Ints:
        """Return the nanoseconds above which a stage is late, given its peer's time."""
        if sds is None:
            # Chosen so that chance makes one of the ranks late in one step of a hundred.
            chance = float(-normal_quantile(_CHANCE_PER_STEP / len(self.usual)))
            sds = min(_LATE_SDS, chance)
        # This many SDs of the logarithm above the peer; tiny stages vary by large factors.
        above = (np.maximum(peer, 0) + self.smallest) * np.expm1(sds * self.spread)
        return np.asarray(np.clip(above, self.smallest, _FOREVER_NS), np.int64)

    def noise(self, peer: Ints) -> Floats:
        return np.asarray(self.spread * (np.maximum(peer, 0) + self.smallest))


def _lower_medians(block: Block, ranks: Ints) -> tuple[Ints]:
    """Kernel: compute the lower median of these ranks, stages × steps."""
    low = (len(ranks) - 1) // 2
    values = (np.ascontiguousarray(block.of(stage, ranks)) for stage in STAGES)
    return (np.array([np.partition(times, low, axis=1)[:, low] for times in values]),)


def _late(
    block: Block, ranks: Ints, peers: Ints, usual: Sequence[Ints], limits: Ints
) -> list[tuple[Ints, Ints, Ints]]:
    """Kernel: return the steps, ranks and lateness of cells above the limit, per stage."""
    # Look at all ranks: nearly all are tested, and choosing them would copy them.
    tested = np.zeros(len(block.ranks), bool)
    tested[ranks] = True
    measured = block["measured"]
    as_usual = np.zeros(len(block.ranks), np.int64)
    cells = []
    for stage, peer, times, limit in zip(STAGES, peers, usual, limits, strict=True):
        as_usual[ranks] = times
        over = block[stage] - as_usual
        late = (over > (peer + limit)[block.steps, None]).T
        # Much faster than np.nonzero in two dimensions.
        rank, step = np.divmod(np.flatnonzero(late.reshape(-1)), late.shape[1] or 1)
        counts = tested[rank] & measured[step, rank]
        rank, step = rank[counts], step[counts]
        step_of_run = step + block.steps.start
        cells.append((step_of_run, rank, over[step, rank] - peer[step_of_run]))
    return cells


def _usual_of_ranks(
    block: Block, sample: Ints, peers: Ints, at: float, smallest: float
) -> tuple[Floats, Floats, Floats]:
    """Kernel: compute per stage and rank its usual excess over the peers, and its spread.

    The spread is that of the logarithm: by itself, and relative to the peers.
    """

    def size(nanoseconds: Ints) -> Floats:
        return np.asarray(np.log(np.maximum(nanoseconds, 0) + smallest))

    figures = []
    for stage, peer in zip(STAGES, peers, strict=True):
        # Rank by rank, in the order of memory.
        values = block.at_steps(stage, sample).T
        sizes = size(values)
        relative = _low_spread(sizes - size(peer))
        figures.append((quantile(values - peer, at), _low_spread(sizes), relative))
    usual, absolute, relative = (np.array(parts) for parts in zip(*figures, strict=True))
    return usual, absolute, relative


def _spread(absolute: Floats, relative: Floats) -> float:
    """Estimate the usual standard deviation of the logarithm of a stage.

    Args:
        absolute: of each rank by itself.
        relative: of each rank relative to its peers.
    """
    ranks = len(absolute)
    # The median of a few peers scatters itself.
    spread = float(np.median(absolute)) * float(np.sqrt(1 + 1 / (ranks - 1)))
    if ranks >= _RANKS_FOR_PEERS:
        # Delays that all ranks share are not lateness; with few ranks the peer itself may be late.
        spread = min(spread, float(np.median(relative)))
    return spread


def _low_spread(values: Floats) -> Floats:
    """Estimate the standard deviation of each row from its lower half."""
    low, lower = quantiles(values, (_LOW, _LOWER))
    return np.asarray((low - lower) * _LOW_TO_SD)


def piled_up(episodes: Ints, tests: int) -> tuple[int, ...]:
    """Find ranks (or hosts) with more late episodes than chance explains.

    A healthy rank may be late twice as often as the others.

    Args:
        episodes: per rank (or host), how often it was late.
        tests: the number of such tests in a run, which share the rate of false alarms.
    """
    named: list[int] = []
    left = list(range(len(episodes)))
    while len(left) > 1:
        most = max(left, key=lambda index: int(episodes[index]))
        total = int(episodes[left].sum())
        share = _HEALTHY_RATIO / (len(left) - 1 + _HEALTHY_RATIO)
        chance = len(left) * binomial_tail(int(episodes[most]) - 1, total, share)
        if episodes[most] < _FEWEST_EPISODES or chance >= ALPHA / tests:
            break
        named.append(most)
        left.remove(most)
    return tuple(sorted(named))


@dataclass(frozen=True)
class Episodes:
    """Episodes: blocks of 2τ steps in which a rank was late at least once."""

    block: Ints
    rank: Ints

    def per_rank(self, ranks: Sequence[int]) -> Ints:
        """Count the episodes of each of these ranks."""
        chosen = list(ranks)
        count = np.bincount(self.rank, minlength=max(chosen, default=0) + 1)
        return np.asarray(count[chosen])

    def per_host(self, hosts: Sequence[Sequence[int]]) -> Ints:
        """Count the blocks in which most ranks of each host were late together.

        Args:
            hosts: the ranks of every host. A host with a single rank counts 0: it is that rank.
        """
        return np.array([self._together(ranks) if len(ranks) > 1 else 0 for ranks in hosts])

    def _together(self, ranks: Sequence[int]) -> int:
        blocks = self.block[np.isin(self.rank, list(ranks))]
        _, count = np.unique(blocks, return_counts=True)
        return int((2 * count > len(ranks)).sum())


def episodes(cells: LateCells, tau: float) -> Episodes:
    """Group the cells into episodes."""
    length = max(1, int(np.ceil(2 * tau)))
    pairs = np.stack([cells.step // length, cells.rank])
    block, rank = np.unique(pairs, axis=1)
    return Episodes(block, rank)


# -- A straggler: the slow ranks, the stage, its excess, and its cost -----------------------------


@dataclass(frozen=True)
class Straggler:
    """A straggler, or lateness that varies from step to step and names no rank.

    ``pattern``: ``persistent``, ``ramp`` (ever slower), ``bursts`` (at times, on these ranks more
    than chance allows) or ``rotating`` (at times, on any rank: ``ranks`` and ``hosts`` are empty).
    """

    pattern: Pattern
    ranks: tuple[int, ...]
    hosts: tuple[str, ...]
    stage: Stage
    #: How much longer the stage takes than its peers': over all steps, or over the late ones if the
    #: rank is late at times.
    excess_ms: Mean
    #: The share of steps in which one of them came last, or was late if it is late at times.
    late_share: float
    #: The mean time per step that would be saved without it.
    cost_ms: Mean
    #: The ratio of the rank's samples per step to its peers', if it has more: then it has more work, and
    #: is not slower.
    work: float | None = None
    #: What the ranks of a slow group have in common: their place in the job's mesh, such as ``dp 1``.
    place: str | None = None
    #: Whether the others wait for it. A slow rank may hide behind slower ones: it is hardly ever last,
    #: and fixing it alone saves nothing.
    holds_back: bool = True

    @property
    def fixes(self) -> tuple[Fix, ...]:
        """Return the fixes of its hosts or else of its ranks.

        None if it varies, and none for a place in the mesh: each of its ranks alone gains nothing.
        """
        if self.place:
            return ()
        of_hosts = tuple(Fix("host", host) for host in self.hosts)
        return of_hosts or tuple(Fix("rank", str(rank)) for rank in self.ranks)

    @property
    def counts_as_imbalance(self) -> bool:
        """Whether it has a separate fix; loaders that stall in turn are fixed as input."""
        return self.pattern != "rotating" or self.stage == "compute"

"""Find ranks and hosts that make the others wait, and lateness that varies from step to step.

The search goes from slow hosts, or else slow places of the job's mesh, to ranks that are slower than the
rest of one, to slow ranks among the others, then to ranks and hosts that are late at times, then to
lateness that varies from step to step. Each test leaves out the stragglers found before, so that one
fault neither hides another nor is counted twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from stallscope.arrays.blocks import NULL, Block
from stallscope.arrays.distributions import binomial_tail, scipy_stats
from stallscope.arrays.stats import mean_with_interval
from stallscope.arrays.types import Bools, Floats, Ints
from stallscope.words import STAGES, Pattern, Stage

from ..ledger.ledger import Ledger
from .lap_test import ALPHA, LapTestResult, indifference, slow_hosts, slow_ranks
from .lateness import Episodes, LateCells, Straggler, episodes, joined, late_cells, piled_up
from .replay import mean_saved, others, some_of, without_faulty, without_lateness

# Lateness that costs less of a step names no rank; lateness that varies from step to step is left out.
_BURSTS_WORTH = 0.01
_ROTATION_WORTH = 0.005
# A rank with this many times the samples has more work, and is not slower.
_MORE_WORK = 1.01
_RAMP_WINDOWS = 10
_FEWEST_STEPS_FOR_RAMP = 100
_TREND = 0.01
# If the median step shows no more than this share of the mean excess, few steps cause it.
_FEW_LATE_STEPS = 0.25


@dataclass(frozen=True)
class FoundStragglers:
    """All stragglers of a run, the most expensive first."""

    stragglers: tuple[Straggler, ...]
    #: Positions of the ranks that are always slow, and of all others.
    slow: tuple[int, ...]
    healthy: tuple[int, ...]
    #: Late cells that fixing ranks would remove, and those of the named ranks.
    late: LateCells | None
    named_late: LateCells | None
    #: Whether no rank can be named because there are too few independent steps.
    too_few_steps: bool
    #: Whether, in these few steps, a rank is last more often than chance explains: then lateness does
    #: not vary from rank to rank, although no rank can be named.
    same_rank_last: bool = False


def find_stragglers(
    ledger: Ledger,
    replayed: Ledger,
    hosts: Sequence[str],
    blind_ns: float = 0.0,
    places: Sequence[Sequence[str]] = (),
) -> FoundStragglers:
    """Test for stragglers of every kind.

    Args:
        ledger: steady steps.
        replayed: the same steps with starving ranks at their loaders' pace, to find the gain of fixing a
            rank; the same ledger if that does not matter.
        hosts: per rank, its host.
        blind_ns: the smallest excess that names a rank; the completion skew where it aligned clocks.
        places: of each dimension of the job's mesh, per rank, its place there.
    """
    everyone = range(len(ledger.ranks))
    ledgers = (ledger, replayed)
    groupings = (hosts, *places)
    tests = sum(1 < len(set(groups)) < len(groups) for groups in groupings) or 1
    tested = [_slow_hosts(*ledgers, groups, blind_ns, tests) for groups in groupings]
    slow_groups = [
        [name for name in names if not _now_and_then(ledger, _of(groups, name))]
        for groups, (names, _) in zip(groupings, tested, strict=True)
    ]
    # Slow hosts, or else slow places in a dimension.
    of_hosts = bool(slow_groups[0]) or not any(slow_groups)
    chosen = 0 if of_hosts else next(index for index, names in enumerate(slow_groups) if names)
    groups, names, (tested_hosts, host_test) = groupings[chosen], slow_groups[chosen], tested[0]
    within = {name: _slow_within_host(*ledgers, _of(groups, name), blind_ns) for name in names}
    rest = [rank for rank in everyone if groups[rank] not in names]
    named, test = _slow_ranks(*ledgers, rest, blind_ns)
    slow = [rank for rank in named if not _now_and_then(ledger, [rank])]
    faulty = sorted({*everyone} - {*rest} | {*slow})
    healthy = [rank for rank in everyone if rank not in set(faulty)] or list(everyone)

    stragglers = [
        replace(
            _slow_group(*ledgers, _of(groups, name), healthy, within[name]),
            hosts=(name,) if of_hosts else (),
            place=None if of_hosts else name,
        )
        for name in names
    ]
    for name, ranks in within.items():
        usual = [rank for rank in _of(groups, name) if rank not in ranks]
        stragglers += [_persistent(*ledgers, [rank], usual, healthy) for rank in ranks]
    stragglers += [_persistent(*ledgers, [rank], healthy, healthy) for rank in slow]
    late = named_late = None
    same_rank_last = test.too_few_steps and _same_rank_last(ledger, healthy, test.tau)
    if len(healthy) > 1:
        bursting = _Bursting(
            tuple(rank for rank in named if rank not in slow),
            tuple(name for name in tested_hosts if not of_hosts or name not in names),
        )
        cells = late_cells(ledger, healthy).certain(blind_ns)
        late_stragglers, late, named_late = _late(
            *ledgers, healthy, cells, bursting, hosts, test.tau
        )
        stragglers += [
            straggler for straggler in late_stragglers if straggler.ranks or not same_rank_last
        ]
    too_few = test.too_few_steps and (host_test is None or host_test.too_few_steps)
    return FoundStragglers(
        tuple(sorted(stragglers, key=lambda straggler: straggler.cost_ms.value, reverse=True)),
        tuple(faulty),
        tuple(healthy),
        late,
        named_late,
        too_few and not names,
        same_rank_last,
    )


def _same_rank_last(ledger: Ledger, ranks: Sequence[int], tau: float) -> bool:
    """Whether one of these ranks is last more often than any of equal ranks would be by chance."""
    times = np.bincount(ledger.critical, minlength=len(ledger.ranks))[list(ranks)]
    independent = times.sum() / max(tau, 1.0)
    most = int(times.max() / max(tau, 1.0))
    chance = len(ranks) * binomial_tail(most - 1, int(independent), 1 / len(ranks))
    return bool(most > 1 and chance < ALPHA)


def _slow_hosts(
    ledger: Ledger, replayed: Ledger, hosts: Sequence[str], blind_ns: float, tests: int
) -> tuple[list[str], LapTestResult | None]:
    """Find hosts that the lap test names and that do not only wait for their own loaders."""
    named, test = slow_hosts(ledger, hosts, blind_ns, tests)
    costly = _cost_on_their_own(ledger, replayed, [_of(hosts, name) for name in named])
    return [named[index] for index in costly], test


def _slow_ranks(
    ledger: Ledger, replayed: Ledger, tested: Sequence[int], blind_ns: float
) -> tuple[list[int], LapTestResult]:
    """Find ranks that the lap test names and that do not only wait for their own loaders."""
    test = slow_ranks(ledger, tested, blind_ns)
    named = [tested[index] for index in test.named]
    return [
        named[index] for index in _cost_on_their_own(ledger, replayed, [[rank] for rank in named])
    ], test


def _cost_on_their_own(
    ledger: Ledger, replayed: Ledger, slow: Sequence[Sequence[int]]
) -> list[int]:
    """Find the (groups of) ranks that are worth fixing even if others wait for their own loaders.

    With all other groups fixed, such a group still costs something.
    """
    if replayed is ledger:
        return list(range(len(slow)))
    least = _worthwhile(ledger, replayed, 0.0) * float(ledger.total.mean())
    fixed = float(without_faulty(replayed, [rank for group in slow for rank in group]).last.mean())
    result = []
    for index in range(len(slow)):
        rest = [rank for place, group in enumerate(slow) if place != index for rank in group]
        if float(without_faulty(replayed, rest).last.mean()) - fixed >= least:
            result.append(index)
    return result


def _worthwhile(ledger: Ledger, replayed: Ledger, share: float) -> float:
    """Return the least share of a step for a straggler; more where loaders hide each other."""
    return share if replayed is ledger else max(share, indifference(len(ledger.ranks)))


def _slow_within_host(
    ledger: Ledger, replayed: Ledger, ranks: Sequence[int], blind_ns: float
) -> list[int]:
    """Find the ranks of a slow host that are slower than its other ranks."""
    named, _ = _slow_ranks(ledger, replayed, ranks, blind_ns)
    usual = [rank for rank in ranks if rank not in named]
    return [rank for rank in named if not _now_and_then(ledger, [rank], usual)]


def _slow_group(
    ledger: Ledger,
    replayed: Ledger,
    ranks: Sequence[int],
    healthy: Sequence[int],
    slower: Sequence[int],
) -> Straggler:
    """Describe a slow host or place by its usual ranks; slower ones still keep their own excess.

    Args:
        ledger: steady steps.
        replayed: the steps to replay.
        ranks: positions of the group's ranks.
        healthy: positions of the healthy ranks.
        slower: positions of its ranks that are slower than its other ranks.
    """
    usual = [rank for rank in ranks if rank not in slower]
    straggler = replace(
        _persistent(ledger, replayed, usual, healthy, healthy),
        ranks=tuple(ledger.ranks[rank] for rank in ranks),
    )
    if not slower:
        return straggler
    fixed = without_faulty(replayed, ranks, healthy)
    means = [replayed.cells.mean_of("arrival", some_of(group)) for group in (usual, healthy)]
    left = replayed.cells.columns("arrival", list(slower)).max(axis=1) - (means[0] - means[1])
    saved = replayed.last - np.maximum(fixed.last, left.astype(np.int64))
    return replace(straggler, cost_ms=mean_saved(saved, fixed.fixed).scaled(1e-6))


def _persistent(
    ledger: Ledger,
    replayed: Ledger,
    ranks: Sequence[int],
    compared: Sequence[int],
    healthy: Sequence[int],
) -> Straggler:
    """Describe ranks that are slow all the time, or become ever slower.

    Args:
        ledger: steady steps.
        replayed: the steps to replay.
        ranks: positions of the ranks.
        compared: positions of the ranks whose stages show their excess.
        healthy: positions of the healthy ranks, which they are as fast as once they are fixed.
    """
    described = set(ranks)
    peers = some_of([rank for rank in compared if rank not in described] or others(ledger, ranks))
    measured, excess = _excess(ledger, ranks, peers)
    stage = max(excess, key=lambda name: float(excess[name].mean()))
    fixed = without_faulty(replayed, ranks, healthy)
    return Straggler(
        pattern="ramp" if _ramps(excess[stage]) else "persistent",
        ranks=tuple(ledger.ranks[rank] for rank in ranks),
        hosts=(),
        stage=stage,
        excess_ms=mean_with_interval(excess[stage]).scaled(1e-6),
        late_share=float(np.isin(ledger.critical, list(ranks))[measured].mean()),
        cost_ms=mean_saved(fixed.saved(replayed), fixed.fixed).scaled(1e-6),
        work=_work(ledger, ranks, peers),
    )


def _excess(
    ledger: Ledger, ranks: Sequence[int], peers: Sequence[int]
) -> tuple[Bools, dict[Stage, Floats]]:
    """Return per step whether these ranks measured it, and the excess of their stages over their peers'.

    The excess is that of the measured steps.
    """
    positions = np.array(ranks, np.int64), np.array(peers, np.int64)
    measured, excess = ledger.cells.gathered(_excess_over_peers, *positions)
    measured = measured if measured.any() else ~measured
    return measured, {stage: values[measured] for stage, values in zip(STAGES, excess, strict=True)}


def _excess_over_peers(block: Block, ranks: Ints, peers: Ints) -> tuple[Bools, Floats]:
    """Kernel: whether most of the ranks measured a step, and their excess: stages × steps."""
    means = [[block.of(stage, group).mean(axis=1) for stage in STAGES] for group in (ranks, peers)]
    measured = block.of("measured", ranks).mean(axis=1) > 0.5
    return measured, np.array(means[0]) - np.array(means[1])


def _of(hosts: Sequence[str], name: str) -> list[int]:
    return [rank for rank, host in enumerate(hosts) if host == name]


def _now_and_then(ledger: Ledger, ranks: Sequence[int], peers: Sequence[int] = ()) -> bool:
    """Whether these ranks are slow only on average, because of a few late steps.

    Args:
        ledger: steady steps.
        ranks: positions of the ranks.
        peers: positions of the ranks to compare them with; empty for all others.
    """
    _, stages = _excess(ledger, ranks, some_of(peers or others(ledger, ranks)))
    excess = max(stages.values(), key=lambda series: float(series.mean()))
    return bool(np.median(excess) < _FEW_LATE_STEPS * excess.mean()) and not _ramps(excess)


def _ramps(excess: Floats) -> bool:
    """Whether an excess grows steadily from almost nothing, as with throttling and leaks."""
    if len(excess) < _FEWEST_STEPS_FOR_RAMP:
        return False
    parts = np.array([part.mean() for part in np.array_split(excess, _RAMP_WINDOWS)])
    windows = np.arange(_RAMP_WINDOWS)
    grown = np.polyfit(windows, parts, 1)[0] * (_RAMP_WINDOWS - 1)
    return bool(grown > parts.mean() and scipy_stats.linregress(windows, parts).pvalue < _TREND)


def _work(ledger: Ledger, ranks: Sequence[int], peers: Sequence[int]) -> float | None:
    """Return the ratio of these ranks' samples per step to their peers'; None if it is not larger."""
    samples = [np.array(group, np.int64) for group in (ranks, peers)]
    missing, *sums = ledger.cells.summed(_samples, *samples)
    if missing or not sums[1]:
        return None
    ratio = float(sums[0] / len(ranks) / (sums[1] / len(peers)))
    return ratio if ratio > _MORE_WORK else None


def _samples(block: Block, *groups: Ints) -> Ints:
    """Kernel: count cells without samples, and add up the samples of each group of ranks."""
    of_groups = [block.of("samples", ranks) for ranks in groups]
    missing = sum(int((samples == NULL).sum()) for samples in of_groups)
    return np.array([missing, *(samples.sum() for samples in of_groups)])


@dataclass(frozen=True)
class _Bursting:
    """Ranks (positions) and hosts that the lap test named because of a few late steps."""

    ranks: tuple[int, ...]
    hosts: tuple[str, ...]


def _late(
    ledger: Ledger,
    replayed: Ledger,
    healthy: Sequence[int],
    cells: LateCells,
    bursting: _Bursting,
    hosts: Sequence[str],
    tau: float,
) -> tuple[list[Straggler], LateCells, LateCells]:
    """Attribute late cells to ranks and hosts; also return the cells that fixing ranks would remove.

    Test twice: on the largest of the significant cells, because any rank has small ones, and on all
    cells that are probably not chance.
    """
    tested = (episodes(cells.take(cells.sure).largest(), tau), episodes(cells, tau))
    stragglers: list[Straggler] = []
    named_hosts = [
        name
        for late_episodes in tested
        for name in _bursting_hosts(late_episodes, hosts, len(tested))
    ]
    for name in dict.fromkeys([*bursting.hosts, *named_hosts]):
        ranks = [rank for rank in healthy if hosts[rank] == name]
        stragglers += _bursts(ledger, replayed, cells.of_ranks(ranks), ranks, (name,))
    left = _not_named(ledger, healthy, stragglers)
    known = [rank for rank in left if rank in bursting.ranks]
    rest = [rank for rank in left if rank not in known]
    named = [
        rest[at]
        for late_episodes in tested
        for at in piled_up(late_episodes.per_rank(rest), len(tested))
    ]
    for rank in dict.fromkeys([*known, *named]):
        stragglers += _bursts(ledger, replayed, cells.of_ranks([rank]), [rank], ())
    left = _not_named(ledger, healthy, stragglers)
    moves = np.isin(cells.rank, left)
    fixed = [cells.take(~moves)]
    for straggler in _rotating(ledger, replayed, cells.take(moves)):
        stragglers.append(straggler)
        # Input and other that are late on any rank are saved by fixing those stages.
        if straggler.counts_as_imbalance:
            fixed.append(cells.take(moves).of_stage(straggler.stage))
    return stragglers, joined(fixed), fixed[0]


def _not_named(ledger: Ledger, ranks: Sequence[int], stragglers: Sequence[Straggler]) -> list[int]:
    named = {rank for straggler in stragglers for rank in straggler.ranks}
    return [rank for rank in ranks if ledger.ranks[rank] not in named]


def _bursting_hosts(late_episodes: Episodes, hosts: Sequence[str], tests: int) -> list[str]:
    """Find hosts where most ranks are late together more often than on other hosts."""
    names = list(dict.fromkeys(hosts))
    if len(names) < 2 or len(names) == len(hosts):
        return []
    together = late_episodes.per_host([_of(hosts, name) for name in names])
    return [names[index] for index in piled_up(together, tests)]


def _bursts(
    ledger: Ledger,
    replayed: Ledger,
    cells: LateCells,
    ranks: Sequence[int],
    hosts: tuple[str, ...],
) -> list[Straggler]:
    """Describe the straggler with these late cells, if it costs enough to be named."""
    if not len(cells):
        return []
    straggler = _late_straggler("bursts", ledger, replayed, cells, ranks, hosts)
    return (
        [straggler]
        if _worth(straggler, ledger, _worthwhile(ledger, replayed, _BURSTS_WORTH))
        else []
    )


def _rotating(ledger: Ledger, replayed: Ledger, cells: LateCells) -> list[Straggler]:
    """Describe lateness that varies from step to step, by stage."""
    by_stage = [cells.of_stage(stage) for stage in STAGES]
    stragglers = [
        _late_straggler("rotating", ledger, replayed, stage_cells, (), ())
        for stage_cells in by_stage
        if stage_cells.sure.any()
    ]
    return [straggler for straggler in stragglers if _worth(straggler, ledger, _ROTATION_WORTH)]


def _worth(straggler: Straggler, ledger: Ledger, share: float) -> bool:
    return straggler.cost_ms.value >= share * float(ledger.total.mean()) / 1e6


def _late_straggler(
    pattern: Pattern,
    ledger: Ledger,
    replayed: Ledger,
    cells: LateCells,
    ranks: Sequence[int],
    hosts: tuple[str, ...],
) -> Straggler:
    saved = ledger.last - without_lateness(replayed, cells)
    stage_cells = cells.of_stage(cells.worst_stage)
    # One value per late step: several late ranks in one step are one event.
    worst = np.zeros(len(ledger), np.int64)
    np.maximum.at(worst, stage_cells.step, stage_cells.by)
    late = worst > 0
    typical, seen = stage_cells.typical()
    excess = mean_with_interval(worst[late])
    return Straggler(
        pattern=pattern,
        ranks=tuple(ledger.ranks[rank] for rank in ranks),
        hosts=hosts,
        stage=cells.worst_stage,
        excess_ms=excess.scaled(1e-6 * typical / float(stage_cells.by.mean())),
        late_share=min(1.0, float(late.mean()) / seen),
        cost_ms=mean_saved(saved).scaled(1e-6),
    )

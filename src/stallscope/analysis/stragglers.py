"""Ranks and hosts that make the others wait, and lateness that moves around.

Slow hosts are looked for first, then slow ranks among the rest, then ranks and hosts that are late now
and then, then lateness that moves around. Each is tested without those found before, so that one fault
neither hides another nor is counted twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import stats as scipy_stats

from .clocks import NULL
from .lap_test import slow_hosts, slow_ranks
from .lateness import LateCells, episodes, late_cells, piled_up
from .ledger import STAGES, Ledger
from .result import Straggler
from .stats import Mean, mean_of_replays, mean_with_interval
from .what_if import some_of, windows, without_faulty, without_lateness

Ints = npt.NDArray[np.int64]

# Lateness that costs less of a step is not worth a name; lateness that moves around, a mention.
_BURSTS_WORTH = 0.01
_ROTATION_WORTH = 0.005
# A rank has more work, not less speed, where it gets so many more samples.
_MORE_WORK = 1.01
_RAMP_WINDOWS = 10
_FEWEST_STEPS_FOR_RAMP = 100
_STEADILY = 0.9
# Where the median step knows so little of the mean excess, it comes from few steps.
_FEW_LATE_STEPS = 0.25


@dataclass(frozen=True)
class Late:
    """Lateness now and then that healing ranks would mend.

    ``ranks`` are the positions of all ranks concerned, ``lateness`` by how many nanoseconds they were
    late, n × ranks; None where nobody was.
    """

    ranks: tuple[int, ...] = ()
    lateness: Ints | None = None


@dataclass(frozen=True)
class Found:
    """All stragglers of a run, the costliest first."""

    stragglers: tuple[Straggler, ...]
    #: Positions of the ranks that are slow all the time, and of all others.
    slow: tuple[int, ...]
    healthy: tuple[int, ...]
    late: Late
    #: Whether nobody can be named because there are too few independent steps.
    too_few_steps: bool


def find_stragglers(ledger: Ledger, hosts: Sequence[str], blind_ns: float = 0.0) -> Found:
    """Test for stragglers of every kind.

    Args:
        ledger: steady steps.
        hosts: per rank, its host.
        blind_ns: nobody is named for less: the completion skew, where clocks were aligned by it.
    """
    everyone = range(len(ledger.ranks))
    tested_hosts, host_test = slow_hosts(ledger, hosts, blind_ns)
    names = [name for name in tested_hosts if not _now_and_then(ledger, _of(hosts, name))]
    rest = [rank for rank in everyone if hosts[rank] not in names]
    test = slow_ranks(ledger, rest, blind_ns)
    named = [rest[index] for index in test.named]
    slow = [rank for rank in named if not _now_and_then(ledger, [rank])]
    faulty = sorted({*everyone} - {*rest} | {*slow})
    healthy = [rank for rank in everyone if rank not in set(faulty)] or list(everyone)

    stragglers = [_persistent(ledger, _of(hosts, name), healthy, (name,)) for name in names]
    stragglers += [_persistent(ledger, [rank], healthy, ()) for rank in slow]
    late = Late()
    if len(healthy) > 1:
        bursting = _Bursting(
            tuple(rank for rank in named if rank not in slow),
            tuple(name for name in tested_hosts if name not in names),
        )
        found, late = _late(ledger, late_cells(ledger, healthy), bursting, hosts, test.tau)
        stragglers += found
    too_few = test.too_few_steps and (host_test is None or host_test.too_few_steps)
    return Found(
        tuple(sorted(stragglers, key=lambda one: one.cost_ms.value, reverse=True)),
        tuple(faulty),
        tuple(healthy),
        late,
        too_few and not names,
    )


def _persistent(
    ledger: Ledger, ranks: Sequence[int], healthy: Sequence[int], hosts: tuple[str, ...]
) -> Straggler:
    """A rank (or a host's ranks) that is slow all the time, or ever more."""
    own = set(ranks)
    peers = some_of([rank for rank in healthy if rank not in own] or _others(ledger, ranks))
    excess = {stage: _excess(ledger, stage, ranks, peers) for stage in STAGES}
    stage = max(excess, key=lambda name: float(excess[name].mean()))
    saved = ledger.last - without_faulty(ledger, ranks)
    return Straggler(
        pattern="ramp" if _ramps(excess[stage]) else "persistent",
        ranks=tuple(ledger.ranks[rank] for rank in ranks),
        hosts=hosts,
        stage=stage,
        excess_ms=mean_with_interval(excess[stage]).scaled(1e-6),
        late_share=float(np.isin(ledger.critical, list(ranks))[_there(ledger, ranks)].mean()),
        cost_ms=mean_of_replays(saved, windows(len(saved))).scaled(1e-6),
        work=_work(ledger, ranks, peers),
    )


def _excess(
    ledger: Ledger, stage: str, ranks: Sequence[int], peers: Sequence[int]
) -> npt.NDArray[np.float64]:
    """By how much a stage of these ranks takes longer than their peers', in the steps they measured."""
    values = getattr(ledger, stage)
    excess = values[:, list(ranks)].mean(axis=1) - values[:, list(peers)].mean(axis=1)
    return np.asarray(excess[_there(ledger, ranks)])


def _there(ledger: Ledger, ranks: Sequence[int]) -> npt.NDArray[np.bool_]:
    """Per step whether these ranks' own figures are there, and no stand-ins."""
    there = ledger.measured[:, list(ranks)].mean(axis=1) > 0.5
    return np.asarray(there if there.any() else ~there)


def _of(hosts: Sequence[str], name: str) -> list[int]:
    return [rank for rank, host in enumerate(hosts) if host == name]


def _now_and_then(ledger: Ledger, ranks: Sequence[int]) -> bool:
    """Whether these are slow on average for a few late steps, and in most steps like the others."""
    peers = some_of(_others(ledger, ranks))
    stages = [_excess(ledger, stage, ranks, peers) for stage in STAGES]
    excess = max(stages, key=lambda series: float(series.mean()))
    return bool(np.median(excess) < _FEW_LATE_STEPS * excess.mean()) and not _ramps(excess)


def _ramps(excess: npt.NDArray[np.float64]) -> bool:
    """Whether an excess grows steadily from next to nothing (throttling, leaks), or shrinks to it."""
    if len(excess) < _FEWEST_STEPS_FOR_RAMP:
        return False
    parts = np.array([part.mean() for part in np.array_split(excess, _RAMP_WINDOWS)])
    trend = scipy_stats.spearmanr(np.arange(_RAMP_WINDOWS), parts).statistic
    return bool(abs(trend) > _STEADILY and abs(parts[-1] - parts[0]) > parts.mean())


def _work(ledger: Ledger, ranks: Sequence[int], peers: Sequence[int]) -> float | None:
    """How many times its peers' samples a rank works through in a step, where it is more."""
    own, theirs = ledger.samples[:, list(ranks)], ledger.samples[:, list(peers)]
    if (own == NULL).any() or (theirs == NULL).any() or not theirs.any():
        return None
    ratio = float(own.mean() / theirs.mean())
    return ratio if ratio > _MORE_WORK else None


def _others(ledger: Ledger, ranks: Sequence[int]) -> list[int]:
    return [rank for rank in range(len(ledger.ranks)) if rank not in set(ranks)]


@dataclass(frozen=True)
class _Bursting:
    """Ranks (positions) and hosts that the lap test named, for a few late steps."""

    ranks: tuple[int, ...]
    hosts: tuple[str, ...]


def _late(
    ledger: Ledger,
    cells: LateCells,
    bursting: _Bursting,
    hosts: Sequence[str],
    tau: float,
) -> tuple[list[Straggler], Late]:
    """Late cells by who they pile up on."""
    late = cells.any()
    if not late.any():
        return [], Late()
    blocks = episodes(late, tau)
    own_hosts = np.array([hosts[rank] for rank in cells.tested])
    stragglers: list[Straggler] = []
    taken: list[int] = []
    for name in dict.fromkeys([*bursting.hosts, *_bursting_hosts(blocks, own_hosts)]):
        chosen = np.flatnonzero(own_hosts == name).tolist()
        stragglers += _worth(_bursts(ledger, cells, chosen, (name,)), ledger, _BURSTS_WORTH)
        taken += chosen if stragglers and stragglers[-1].hosts == (name,) else []
    left = [index for index in range(len(cells.tested)) if index not in set(taken)]
    known = [index for index in left if cells.tested[index] in set(bursting.ranks)]
    rest = [index for index in left if index not in set(known)]
    for index in [*known, *(rest[at] for at in piled_up(blocks[:, rest].sum(axis=0)))]:
        one = _worth(_bursts(ledger, cells, [index], ()), ledger, _BURSTS_WORTH)
        stragglers += one
        taken += [index] if one else []
    left = [index for index in range(len(cells.tested)) if index not in set(taken)]
    rotating = _rotating(ledger, cells, left)
    stragglers += rotating
    counted = [(taken, cells)]
    # Input and other that come late on any rank are won back with those stages' own fixes.
    counted += (
        [(left, cells.only("compute"))] if any(r.counts_as_imbalance for r in rotating) else []
    )
    ranks = tuple(cells.tested[index] for chosen, _ in counted for index in chosen)
    if not ranks:
        return stragglers, Late()
    lateness = np.concatenate([own.lateness(chosen) for chosen, own in counted], axis=1)
    return stragglers, Late(ranks, lateness)


def _bursting_hosts(blocks: npt.NDArray[np.bool_], hosts: npt.NDArray[np.str_]) -> tuple[str, ...]:
    """Hosts most of whose ranks are late together, more often than other hosts'."""
    names = list(dict.fromkeys(hosts.tolist()))
    if len(names) < 2 or len(names) == len(hosts):
        return ()
    together = []
    for name in names:
        own = blocks[:, hosts == name]
        # A host with one rank cannot be told from that rank.
        together.append(int((own.mean(axis=1) > 0.5).sum()) if own.shape[1] > 1 else 0)
    return tuple(names[index] for index in piled_up(np.array(together)))


def _worth(found: Straggler, ledger: Ledger, share: float) -> list[Straggler]:
    step = float(ledger.total.mean()) / 1e6
    return [found] if found.cost_ms.value >= share * step else []


def _bursts(
    ledger: Ledger, cells: LateCells, chosen: list[int], hosts: tuple[str, ...]
) -> Straggler:
    positions = [cells.tested[index] for index in chosen]
    return _late_straggler("bursts", ledger, cells, chosen, positions, hosts)


def _rotating(ledger: Ledger, cells: LateCells, left: list[int]) -> list[Straggler]:
    """Lateness that moves around, by stage."""
    found = []
    for stage in STAGES:
        only = cells.only(stage)
        if only.late[stage][:, left].any():
            one = _late_straggler("rotating", ledger, only, left, [], ())
            found += _worth(one, ledger, _ROTATION_WORTH)
    return found


def _late_straggler(
    pattern: str,
    ledger: Ledger,
    cells: LateCells,
    chosen: list[int],
    named: list[int],
    hosts: tuple[str, ...],
) -> Straggler:
    lateness = cells.lateness(chosen)
    ranks = [cells.tested[index] for index in chosen]
    saved = ledger.last - without_lateness(ledger, ranks, lateness)
    stage = cells.stage(chosen)
    late = cells.likely[stage][:, chosen]
    by = cells.by[stage][:, chosen]
    # One value per late step: lateness of several ranks in one step is one event.
    late_steps = late.any(axis=1)
    worst = np.where(late, by, 0).max(axis=1)[late_steps]
    return Straggler(
        pattern=pattern,
        ranks=tuple(ledger.ranks[rank] for rank in named),
        hosts=hosts,
        stage=stage,
        excess_ms=mean_with_interval(worst).scaled(1e-6) if len(worst) else Mean(0.0, None),
        late_share=float(late_steps.mean()),
        cost_ms=mean_of_replays(saved, windows(len(saved))).scaled(1e-6),
        work=None,
    )

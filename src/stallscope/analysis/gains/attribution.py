"""Find the ranks that delay the others, and predict the gain of each fix."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from stallscope.arrays.stats import Mean
from stallscope.words import STAGES, Fix

from ..ledger.ledger import Ledger
from ..setup import CoreUse
from ..stragglers.lateness import Straggler
from ..stragglers.loaders import peer_limit_unknown, with_loaders_at_work
from ..stragglers.replay import with_equal_stages, without_faulty
from ..stragglers.stragglers import FoundStragglers, find_stragglers
from ..stragglers.variation import variation
from .gains import IMBALANCE, Faults, gains_with_baseline, gains_without_baseline
from .what_if import WhatIf

# A straggler whose fix alone saves this share of a step holds the run back, however rarely it is last.
_COSTLY = 0.005
# Standard deviations of a rank's arrival by which it is earlier than the last ranks usually are. In 339
# simulated runs, 50 with a slow rank that is last in under 2 % of steps, limits of 2, 3, 4 called
# 28, 4, 0 of the other 289 hidden, and missed 0, 2, 14 of the 50.
_HIDDEN = 3.0
# A slow host's delay tells whether steps end later for it in so many steps, if it varies by this share.
# Steps with the largest changes, such as pauses, are left out.
_FEWEST_LATE, _VARIES, _USUAL = 20, 0.3, 0.95
# Fixes of single ranks.
_OF_RANKS = ("imbalance", "rank", "host")


@dataclass(frozen=True)
class Attribution:
    """The stragglers of a run, and the gain of each fix."""

    stragglers: tuple[Straggler, ...]
    #: The gain of each fix alone.
    gains: tuple[WhatIf, ...]
    #: Gains of faults that share nothing, among which the verdict chooses.
    gains_in_turn: tuple[WhatIf, ...]
    #: Whether there are too few independent steps to name a rank.
    too_few_steps: bool
    #: Imbalance that slow input causes, milliseconds per step: ranks waited while their loaders worked.
    imbalance_from_input_ms: float = 0.0
    #: Whether the named ranks' loaders prefetch and the limit of the other loaders is unknown.
    peer_limit_unknown: bool = False
    #: The only ranks whose loaders are too slow, if an input probe shows that others keep up.
    late_loaders: tuple[int, ...] = ()
    #: Ranks whose hosts are slow, and whose steps do not end later for that.
    hidden_hosts: tuple[int, ...] = ()

    def gain(self, fix: Fix) -> WhatIf | None:
        """Return the gain of a fix; None if it was not predicted."""
        return next((gain for gain in self.gains if gain.fix == fix), None)

    @property
    def named(self) -> tuple[int, ...]:
        """Return the named ranks that the others wait for, ascending."""
        return tuple(sorted({rank for straggler in self._waited_for for rank in straggler.ranks}))

    @property
    def hosts(self) -> tuple[str, ...]:
        """Return the named hosts that the others wait for, the costliest first."""
        return tuple(
            dict.fromkeys(host for straggler in self._waited_for for host in straggler.hosts)
        )

    @property
    def _waited_for(self) -> list[Straggler]:
        return [straggler for straggler in self.stragglers if straggler.holds_back]


def attribute(
    ledger: Ledger,
    hosts: Sequence[str],
    baseline: Ledger | None,
    blind_ns: float = 0.0,
    cores: CoreUse | None = None,
    stages: Sequence[tuple[int, ...]] = (),
    places: Sequence[Sequence[str]] = (),
    hosts_only: bool = False,
) -> Attribution:
    """Test for stragglers of every kind, and predict the gain of each fix.

    Args:
        ledger: steady steps.
        hosts: per rank, its host.
        baseline: steady steps of a baseline of the same job on the same number of ranks.
        blind_ns: the smallest excess that names a rank; the completion skew where it aligned clocks.
        cores: how the ranks use CPU cores, if known.
        stages: per rank, its stages of a pipeline; empty without one. Only ranks of the same stages are
            compared, and gains are bounds, because stages with less work hide a slow rank's delay. What
            a faster network gains is unknown: most of the time in messages is the schedule's.
        places: of each dimension of the job's mesh, per rank, its place there, such as ``dp 1``.
        hosts_only: whether only the hosts' work is known of each rank. Gains are bounds then, because
            devices that compute longer hide a part of a slow host's delay.
    """
    cores = cores or CoreUse()
    if hosts_only:
        seen = attribute(ledger, hosts, baseline, blind_ns, cores, stages, places)
        return _with_bounds(_without_hidden_hosts(seen, ledger))
    if stages:
        level = with_equal_stages(ledger, stages)
        peers = None if baseline is None else with_equal_stages(baseline, stages)
        # Equal stages are the same in all of their ranks.
        replicas = [groups for groups in places if not _are_stages(groups, stages)]
        attribution = attribute(level, hosts, peers, blind_ns, cores, places=replicas)
        return _of_pipeline(_with_bounds(attribution))
    recorded, ledger = ledger, with_loaders_at_work(ledger)
    detection = find_stragglers(recorded, ledger, hosts, blind_ns, places)
    fixed = without_faulty(ledger, detection.slow)
    varying_compute = variation(ledger, baseline, detection, fixed)
    if varying_compute is not None:
        detection = _with_varying_compute(detection, varying_compute.straggler)
    in_input = {
        rank
        for straggler in detection.stragglers
        if straggler.stage == "input"
        for rank in straggler.ranks
    }
    slow_in_input = [rank for rank in detection.slow if ledger.ranks[rank] in in_input]
    limit_unknown = peer_limit_unknown(ledger, slow_in_input)
    faults = Faults(ledger, detection, fixed, varying_compute, limit_unknown)
    if baseline is None:
        gains = gains_without_baseline(faults, cores)
    else:
        gains = gains_with_baseline(faults, baseline, cores)
    stragglers = _costliest_first(gains.saved_ms, detection.stragglers)
    return Attribution(
        _with_hidden_marked(stragglers, ledger),
        gains.alone,
        gains.in_turn,
        detection.too_few_steps,
        float((recorded.imbalance - ledger.imbalance).mean()) / 1e6,
        limit_unknown,
    )


def _are_stages(groups: Sequence[str], stages: Sequence[tuple[int, ...]]) -> bool:
    """Whether ranks have the same place where they have the same stages."""
    return len(set(zip(groups, stages))) == len(set(groups)) == len(set(stages))


def _without_hidden_hosts(attribution: Attribution, ledger: Ledger) -> Attribution:
    """Leave out slow hosts for which steps do not end later, because other ranks' devices take longer.

    Only hosts whose delay varies show that.
    """
    hidden = {
        straggler for straggler in attribution.stragglers if _is_hidden_host(straggler, ledger)
    }
    seen = tuple(each for each in attribution.stragglers if each not in hidden)
    fixes = {fix for straggler in hidden for fix in straggler.fixes}
    if hidden and not any(straggler.counts_as_imbalance for straggler in seen):
        fixes.add(IMBALANCE)
    gains, in_turn = (
        tuple(gain for gain in some if gain.fix not in fixes)
        for some in (attribution.gains, attribution.gains_in_turn)
    )
    ranks = {rank for straggler in hidden for rank in straggler.ranks}
    return replace(
        attribution,
        stragglers=seen,
        gains=gains,
        gains_in_turn=in_turn,
        hidden_hosts=tuple(sorted(ranks)),
    )


def _is_hidden_host(straggler: Straggler, ledger: Ledger) -> bool:
    """Whether the devices' time is shorter by what the slow host is later, from step to step."""
    positions = np.flatnonzero(np.isin(ledger.ranks, straggler.ranks or ledger.ranks))
    chosen = np.isin(ledger.critical, positions)
    devices = ledger.of("devices", ledger.critical)[chosen] / 1e6
    host = ledger.of("arrival", ledger.critical)[chosen] / 1e6 - devices
    if len(host) < _FEWEST_LATE or host.std() < _VARIES * straggler.excess_ms.value:
        return False
    later, shorter = np.diff(host), np.diff(devices)
    usual = np.abs(later) <= np.quantile(np.abs(later), _USUAL)
    later, shorter = later[usual], shorter[usual]
    square = float(later @ later)
    if not square:
        return False
    slope = float(later @ shorter) / square
    error = float(np.sqrt(((shorter - slope * later) ** 2).mean() / square))
    return slope < -0.5 and slope + 2 * error < 0


def _with_bounds(attribution: Attribution) -> Attribution:
    """Mark the gains of faster ranks as bounds, where others may hide a part of their delay."""
    gains = (
        replace(gain, bound=True, ci95=None) if gain.fix.kind in _OF_RANKS else gain
        for gain in attribution.gains
    )
    return replace(attribution, gains=tuple(gains))


def _of_pipeline(attribution: Attribution) -> Attribution:
    """Leave out the gains of a faster network."""
    gains = (gain for gain in attribution.gains if gain.fix.kind not in ("allreduce", "all"))
    return replace(attribution, gains=tuple(gains))


def _costliest_first(
    saved: Mapping[Fix, Mean], stragglers: Sequence[Straggler]
) -> tuple[Straggler, ...]:
    """Set each straggler's cost to the saving of its fix, and sort by cost.

    Lateness that varies from step to step is left out if it costs nothing.
    """
    only_one = sum(straggler.counts_as_imbalance for straggler in stragglers) == 1
    costly = []
    for straggler in stragglers:
        fixes = straggler.fixes
        if not fixes and straggler.counts_as_imbalance and only_one:
            # It names no rank, but it is the only cause of the imbalance.
            fixes = (IMBALANCE,)
        cost = next((saved[fix] for fix in fixes if fix in saved), straggler.cost_ms)
        if straggler.ranks or cost.value > 0:
            costly.append(replace(straggler, cost_ms=cost))
    return tuple(sorted(costly, key=lambda straggler: straggler.cost_ms.value, reverse=True))


def _with_hidden_marked(stragglers: Sequence[Straggler], ledger: Ledger) -> tuple[Straggler, ...]:
    """Mark the slow ranks and hosts that hide behind slower ones: they are far too early to be last."""
    arrival = np.sum([ledger.rank_means[stage] for stage in STAGES], axis=0)
    times_last = np.bincount(ledger.critical, minlength=len(ledger.ranks))
    usual_last = float(np.nansum(arrival * times_last)) / max(len(ledger), 1)
    least_cost_ms = _COSTLY * float(ledger.total.mean()) / 1e6
    # The latest rank of each straggler that is always slow and costs hardly anything.
    latest: dict[Straggler, int] = {}
    for straggler in stragglers:
        ranks = np.flatnonzero(np.isin(ledger.ranks, straggler.ranks))
        always_slow = straggler.pattern in ("persistent", "ramp")
        if len(ranks) and always_slow and straggler.cost_ms.value < least_cost_ms:
            latest[straggler] = int(ranks[np.nanargmax(arrival[ranks])])
    noise = ledger.cells.columns("arrival", [*latest.values()]).std(axis=0)
    hidden = {
        straggler
        for (straggler, rank), deviation in zip(latest.items(), noise, strict=True)
        if usual_last - arrival[rank] >= _HIDDEN * deviation
    }
    return tuple(replace(straggler, holds_back=straggler not in hidden) for straggler in stragglers)


def _with_varying_compute(detection: FoundStragglers, varying: Straggler) -> FoundStragglers:
    """Add compute that varies on all ranks; it replaces the late cells of compute."""
    rest = [
        straggler
        for straggler in detection.stragglers
        if (straggler.pattern, straggler.stage) != ("rotating", "compute")
    ]
    stragglers = sorted(
        [*rest, varying], key=lambda straggler: straggler.cost_ms.value, reverse=True
    )
    return replace(detection, stragglers=tuple(stragglers), late=detection.named_late)

"""Predict the gain of each fix: from a matching baseline, or else from the run's own steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations, product

import numpy as np

from stallscope.arrays.stats import Mean
from stallscope.arrays.types import Bools, Ints
from stallscope.words import STAGES, Fix, LedgerPart, Stage

from ..ledger.ledger import Ledger
from ..setup import CoreUse
from ..stragglers.lateness import LateCells, Straggler
from ..stragglers.replay import ASSUMED_MS, Replay, with_usual_stage, without_lateness
from ..stragglers.stragglers import FoundStragglers
from ..stragglers.variation import Variation
from .baseline_replay import BaselineReplay
from .slowed_peers import faster_peers_ms, idle_loaders_ms, shorter_allreduce_ms
from .what_if import (
    WORTH_MENTIONING,
    WhatIf,
    as_bound,
    saving,
    what_if,
    what_if_saved,
    with_model_error,
)

#: Fixes that remove one fault from the run; the verdict chooses among them.
FAULTS: tuple[LedgerPart, ...] = ("imbalance", *STAGES)
#: The fix of all slow ranks.
IMBALANCE = Fix("imbalance")
_ALL = Fix("all")
# These fixes make slow ranks as fast as the others.
_OF_RANKS = ("imbalance", "all", "rank", "host")
# Without a baseline, the time that compute needs is unknown.
_ASSUMED_STAGES: tuple[Stage, ...] = ("input", "other")

# After a pause caches are cold and cores clock low. Compute on a CPU core loses this fraction of the
# pause, or of compute if that is shorter: the median of single ranks in one half of the pairs of
# benchmarks/scorecard/pairs.py.
_SLOWER_AFTER_PAUSE = 0.1


@dataclass(frozen=True)
class Faults:
    """The faults of a run, and the replays from which the gains are computed."""

    #: Steady steps in which starving ranks go at their loaders' pace.
    ledger: Ledger
    detection: FoundStragglers
    #: The steps with the slow ranks fixed.
    fixed: Replay
    variation: Variation | None
    #: Whether the named ranks' loaders prefetch, so that the limit of the other loaders is unknown.
    peer_limit_unknown: bool

    @property
    def step_ms(self) -> float:
        return float(self.ledger.total.mean()) / 1e6

    def late_ns(self, cells: LateCells | None) -> Ints:
        """Return by how much late cells delay the last rank, per step."""
        if cells is None:
            return np.zeros(len(self.ledger), np.int64)
        return self.ledger.last - without_lateness(self.ledger, cells)


@dataclass(frozen=True)
class Gains:
    """The gains of fixes, for people and for the verdict."""

    #: The gain of each fix alone, while every other fault stays. Fixes overlap: a slow loader on rank 1
    #: is saved by ``rank:1`` and by ``input``.
    alone: tuple[WhatIf, ...]
    #: Gains of FAULTS that share nothing: the larger fault is fixed first, and the others save what it
    #: leaves. The verdict compares these.
    in_turn: tuple[WhatIf, ...]
    #: By fix, the estimated milliseconds per step that it saves alone, also where only a bound is shown.
    saved_ms: Mapping[Fix, Mean]


def gains_with_baseline(faults: Faults, baseline: Ledger, cores: CoreUse) -> Gains:
    """Predict every fix from a baseline of the same job on the same number of ranks.

    The baseline has no loader workers. If workers take CPU cores from compute, the predicted gain of
    faster input is an upper bound.
    """
    ledger = faults.ledger
    replay = BaselineReplay.of(ledger, baseline, *_late_and_named(faults), cores)

    def gains(shares: Mapping[Fix, float]) -> list[WhatIf]:
        predicted = [
            what_if_saved(fix, ledger, replay.saved(share, replay.side_effects.get(fix.kind, 0.0)))
            for fix, share in shares.items()
        ]
        if cores.busy_loaders:
            predicted = [
                replace(gain, bound=_speeds_up_input(gain.fix, faults.detection))
                for gain in predicted
            ]
        return _with_bounds(predicted, faults)

    shares = _Shares(faults, replay)
    alone = gains(shares.alone())
    # No fix makes a step shorter than the baseline's.
    bounded = [as_bound(gain, faults.step_ms, replay.loss / 1e6) for gain in alone]
    return _gains(alone, bounded, gains(shares.in_turn), faults)


def _gains(
    alone: Sequence[WhatIf], bounded: Sequence[WhatIf], in_turn: Sequence[WhatIf], faults: Faults
) -> Gains:
    """Collect gains, with those of parts that every healthy step has, and note which ones overlap.

    Args:
        alone: estimates of the gains of each fix alone.
        bounded: the same, with bounds as large as the gain may be.
        in_turn: estimates of gains that share nothing.
        faults: the run's faults.
    """
    shown = [*bounded, *_what_could_shrink(faults)]
    overlapping = _overlapping({gain.fix for gain in shown if gain.worth_mentioning}, faults)
    return Gains(
        tuple(replace(gain, overlaps=overlapping.get(gain.fix, ())) for gain in shown),
        tuple(in_turn),
        {gain.fix: gain.saved_ms for gain in alone},
    )


def _overlapping(fixes: set[Fix], faults: Faults) -> dict[Fix, tuple[Fix, ...]]:
    """Return, for each of these fixes, the others that save some of the same time.

    ``all`` combines every fix, so it is left out.
    """
    pairs: set[tuple[Fix, Fix]] = set()
    stragglers = [
        straggler for straggler in faults.detection.stragglers if straggler.counts_as_imbalance
    ]
    for straggler in stragglers:
        stages = [Fix(stage) for stage in _slower_stages(straggler, faults)]
        pairs |= {(IMBALANCE, fix) for fix in (Fix(straggler.stage), *straggler.fixes)}
        pairs |= {(fix, stage) for fix in straggler.fixes for stage in stages}
    for first, second in combinations(stragglers, 2):
        if set(first.ranks) & set(second.ranks):
            pairs |= set(product(first.fixes, second.fixes))
    overlapping: dict[Fix, list[Fix]] = {fix: [] for fix in fixes}
    for fix, fix_too in sorted(pairs, key=lambda pair: (str(pair[0]), str(pair[1]))):
        if fix in fixes and fix_too in fixes:
            overlapping[fix].append(fix_too)
            overlapping[fix_too].append(fix)
    return {fix: tuple(sorted(shared, key=str)) for fix, shared in overlapping.items()}


def _slower_stages(straggler: Straggler, faults: Faults) -> set[Stage]:
    """Return the stages in which a straggler is slower than healthy ranks: its fix saves all of them."""
    ledger = faults.ledger
    ranks = np.flatnonzero(np.isin(ledger.ranks, straggler.ranks))
    stages = {straggler.stage}
    if not len(ranks):
        return stages
    least = (WORTH_MENTIONING - 1.0) * float(ledger.total.mean())
    for stage in STAGES:
        means = ledger.rank_means[stage]
        usual = np.nanmedian(means[list(faults.detection.healthy)])
        if np.nanmax(means[ranks]) > usual + least:
            stages.add(stage)
    return stages


def _speeds_up_input(fix: Fix, detection: FoundStragglers) -> bool:
    """Whether a fix makes input faster."""
    if fix.kind in ("input", "all"):
        return True
    fixes = {
        fix
        for straggler in detection.stragglers
        if straggler.stage == "input"
        for fix in straggler.fixes
    }
    return fix in fixes or (fix == IMBALANCE and bool(fixes))


@dataclass(frozen=True)
class _Shares:
    """Shares of the loss against the baseline, from 0 to 1, that fixes win back."""

    faults: Faults
    replay: BaselineReplay

    def alone(self) -> dict[Fix, float]:
        """Return the share that each fix wins back while every other fault stays."""
        replay, stragglers = self.replay, self.faults.detection.stragglers
        shares = {Fix(stage): replay.share(self._nothing, self._all_of(stage)) for stage in STAGES}
        for straggler in stragglers:
            share = replay.share(self._nothing, self._cells_of(straggler))
            shares |= dict.fromkeys(straggler.fixes, share)
        if any(straggler.counts_as_imbalance for straggler in stragglers):
            compute = self._after_slow_ranks["compute"]
            varying = _varying_compute(self.faults.detection, replay, compute)
            shares[IMBALANCE] = min(replay.share_of_all, self._slow_ranks + varying)
        if sum(share > 0 for share in self.in_turn.values()) > 1:
            shares[_ALL] = replay.share_of_all
        return shares

    @cached_property
    def in_turn(self) -> dict[Fix, float]:
        """Return the shares of FAULTS that share nothing.

        The larger fault is fixed first: the slow ranks, or the stage that costs most on all ranks,
        including the slow ranks' part of it.
        """
        replay, stragglers = self.replay, self.faults.detection.stragglers
        slow_ranks, stages = self._slow_ranks, {**self._after_slow_ranks}
        largest = max(stages, key=stages.__getitem__)
        if stages[largest] > slow_ranks:
            first = self._all_of(largest)
            stages[largest] = replay.share(self._nothing, first)
            slow_ranks = replay.share(first, self._named)
        varying = _varying_compute(self.faults.detection, replay, stages["compute"])
        stages["compute"] -= varying
        shares = {Fix(stage): share for stage, share in stages.items()}
        if any(straggler.counts_as_imbalance for straggler in stragglers):
            shares[IMBALANCE] = slow_ranks + varying
        return _capped(shares, replay.share_of_all)

    @cached_property
    def _slow_ranks(self) -> float:
        """Return the share that fixing all named ranks wins back."""
        return self.replay.share(self._nothing, self._named)

    @cached_property
    def _after_slow_ranks(self) -> dict[Stage, float]:
        """Return the share that each stage on all ranks still wins back after the named ranks."""
        return {stage: self.replay.share(self._named, self._all_of(stage)) for stage in STAGES}

    @cached_property
    def _nothing(self) -> Bools:
        return np.zeros_like(self.replay.slower)

    @cached_property
    def _named(self) -> Bools:
        """Mark the stages × ranks that fixing all named ranks fixes."""
        named = self._nothing.copy()
        for straggler in self.faults.detection.stragglers:
            named |= self._cells_of(straggler)
        return named

    def _cells_of(self, straggler: Straggler) -> Bools:
        """Mark the stages × ranks that fixing a straggler fixes.

        A rank that is slower than its slow host keeps the stage in which it is: another host does not
        repair that.
        """
        ranks = self.faults.ledger.ranks
        cells = self.replay.cells_of(straggler.stage, np.isin(ranks, straggler.ranks))
        for part in self.faults.detection.stragglers:
            is_within = set(part.ranks) < set(straggler.ranks)
            if part.ranks and is_within and part.stage != straggler.stage:
                cells[STAGES.index(part.stage), np.isin(ranks, part.ranks)] = False
        return cells

    def _all_of(self, stage: Stage) -> Bools:
        """Mark a stage of all ranks, stages × ranks."""
        return np.outer([stage == name for name in STAGES], np.ones(self._nothing.shape[1], bool))


def _varying_compute(detection: FoundStragglers, replay: BaselineReplay, compute: float) -> float:
    """Return the part of compute's share that is variation, and not slower compute.

    Compute that is slower on all ranks also varies more.
    """
    varying = sum(
        straggler.cost_ms.value * 1e6
        for straggler in detection.stragglers
        if straggler.counts_as_imbalance and not straggler.ranks
    )
    varying = float(np.clip(varying / replay.loss, 0.0, 1.0)) if replay.loss > 0 else 0.0
    varying = min(varying, max(0.0, compute - replay.slower_compute))
    own_fault = varying >= replay.own_fault.get("compute", 0.0) * compute
    return min(varying, compute) if own_fault else 0.0


def _capped(shares: dict[Fix, float], everything: float) -> dict[Fix, float]:
    """Shrink the shares of stages so that all faults together win back no more than the whole loss.

    Each stage is replayed separately. If two stages are slow on one rank, both replays count that rank.
    """
    stages = sum(shares[Fix(stage)] for stage in STAGES)
    left = max(0.0, everything - shares.get(IMBALANCE, 0.0))
    shrink = min(1.0, left / stages) if stages > 0 else 1.0
    return {fix: share * (shrink if fix.kind in STAGES else 1.0) for fix, share in shares.items()}


def gains_without_baseline(faults: Faults, cores: CoreUse) -> Gains:
    """Predict every fix by replaying the run's own steps.

    If ranks share CPU cores, compute becomes slower once no rank waits. The run does not show by how
    much, so the gains are upper bounds.
    """
    ledger, detection, step_ms = faults.ledger, faults.detection, faults.step_ms
    faster = faster_peers_ms(ledger, detection.stragglers, cores)
    of_ranks: list[WhatIf] = []
    if any(straggler.counts_as_imbalance for straggler in detection.stragglers):
        of_ranks.append(_with_more_saved(_imbalance_gain(faults), [*faster.values()], step_ms))
    slow_ranks = len(of_ranks)
    for straggler in detection.stragglers:
        more = [faster[straggler]] if faster else []
        for fix in straggler.fixes:
            gain = what_if_saved(fix, ledger, straggler.cost_ms.scaled(1e6))
            of_ranks.append(_with_more_saved(replace(gain, mostly_ms=0.0), more, step_ms))
    stages = {stage: _stage_gain(stage, faults, cores) for stage in _ASSUMED_STAGES}
    alone = [
        _with_more_saved(
            _stage_gain(stage, faults, cores, alone=True),
            [more for straggler, more in faster.items() if straggler.stage == stage],
            step_ms,
        )
        for stage in _ASSUMED_STAGES
    ]
    idle_ms, most_idle_ms = idle_loaders_ms(ledger, cores) if cores.on_cpu else (0.0, 0.0)

    def certain(gains: Sequence[WhatIf]) -> list[WhatIf]:
        if cores.on_cpu:
            gains = [
                _with_idle_loaders(with_model_error(gain, step_ms), detection, idle_ms, step_ms)
                for gain in gains
            ]
        gains = [replace(gain, bound=gain.bound or cores.shared) for gain in gains]
        return _with_bounds(gains, faults)

    def beyond_interval_ms(gain: WhatIf) -> float:
        more = shorter_allreduce_ms(gain.saved_ms.value, ledger, cores)
        if _speeds_up_input(gain.fix, detection):
            more += most_idle_ms - (idle_ms if gain.saved_ms.ci95 is not None else 0.0)
        return more

    estimates = certain([*of_ranks, *alone])
    bounded = [as_bound(gain, step_ms, step_ms, beyond_interval_ms(gain)) for gain in estimates]
    in_turn = certain([*of_ranks[:slow_ranks], *stages.values()])
    return _gains(estimates, bounded, in_turn, faults)


def _late_and_named(faults: Faults) -> tuple[Bools, Bools]:
    """Mark the stages × ranks in which lateness varies from step to step, and those of named ranks."""
    ranks = np.array(faults.ledger.ranks)
    late, named = np.zeros((2, len(STAGES), len(ranks)), bool)
    for straggler in faults.detection.stragglers:
        stage = STAGES.index(straggler.stage)
        late[stage] |= not straggler.ranks
        named[stage] |= np.isin(ranks, straggler.ranks)
    return late, named


def _with_bounds(gains: Sequence[WhatIf], faults: Faults) -> list[WhatIf]:
    """Mark the gains of fixing ranks as upper bounds if the limit of the other loaders is unknown."""
    if not faults.peer_limit_unknown:
        return list(gains)
    return [replace(gain, bound=gain.bound or gain.fix.kind in _OF_RANKS) for gain in gains]


def _what_could_shrink(faults: Faults) -> list[WhatIf]:
    """Predict the gains of parts that every healthy step has: allreduce, and half the variation."""
    ledger = faults.ledger
    if len(ledger.ranks) < 2:
        return []
    # When the last rank would be ready if no named rank were slow or late.
    usual = faults.fixed.last - faults.late_ns(faults.detection.named_late)
    rest = usual - (ledger.last - ledger.imbalance)
    allreduce = what_if(Fix("allreduce"), ledger, ledger.allreduce)
    return [
        what_if(Fix("variation"), ledger, np.asarray(rest // 2)),
        as_bound(replace(allreduce, bound=True), faults.step_ms, faults.step_ms),
    ]


def _imbalance_gain(faults: Faults) -> WhatIf:
    ledger, variation, uncertainty = faults.ledger, faults.variation, 0.0
    saved = faults.fixed.saved(ledger) + faults.late_ns(faults.detection.late)
    if variation is not None:
        saved, uncertainty = saved + variation.saved, variation.uncertainty_ns
    return what_if(IMBALANCE, ledger, saved, faults.fixed.fixed, uncertainty)


def _with_more_saved(gain: WhatIf, more_ms: Sequence[Mean], step_ms: float) -> WhatIf:
    """Return the gain if it also saves these milliseconds."""
    saved = gain.saved_ms
    for more in more_ms:
        saved = saved.minus(more.scaled(-1.0))
    return saving(gain, saved, step_ms)


def _with_idle_loaders(
    gain: WhatIf, detection: FoundStragglers, idle_ms: float, step_ms: float
) -> WhatIf:
    """Extend a gain's interval by the possible gain from idle loaders."""
    ci95 = gain.saved_ms.ci95
    if ci95 is None or not idle_ms or not _speeds_up_input(gain.fix, detection):
        return gain
    return saving(gain, Mean(gain.saved_ms.value, (ci95[0], ci95[1] + idle_ms)), step_ms)


def _stage_gain(stage: Stage, faults: Faults, cores: CoreUse, alone: bool = False) -> WhatIf:
    """Predict the gain if a stage takes the assumed time on every rank.

    Args:
        stage: ``input`` or ``other``.
        faults: the run's faults.
        cores: how the ranks use CPU cores.
        alone: whether every other fault stays; otherwise the named ranks are fixed before.
    """
    ledger, detection = faults.ledger, faults.detection
    everyone = range(len(ledger.ranks))
    before, ranks = (ledger.last, everyone) if alone else (faults.fixed.last, detection.healthy)
    saved = before - with_usual_stage(ledger, stage, before, ranks)
    if not alone:
        saved = saved - faults.late_ns(
            None if detection.late is None else detection.late.of_stage(stage)
        )
    if cores.on_cpu and not cores.shared:
        # Without a pause before it, compute is faster. On shared cores gains are bounds, and waiting
        # ranks leave their cores to the others.
        shorter = np.minimum(np.maximum(saved, 0), ledger.by_cause("compute"))
        saved = saved + np.asarray(_SLOWER_AFTER_PAUSE * shorter, np.int64)
    # The time that a stage needs is unknown: at most its whole time.
    uncertainty = min(ASSUMED_MS * 1e6, float(ledger.by_cause(stage).mean()))
    return what_if(Fix(stage), ledger, saved, uncertainty_ns=uncertainty)

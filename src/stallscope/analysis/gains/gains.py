"""Predict the gain of each fix: from a matching baseline, or else from the run's own steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from stallscope.arrays.stats import Mean
from stallscope.arrays.types import Bools, Ints

from ..ledger.ledger import STAGES, Ledger
from ..settings.cores import CoreUse
from ..stragglers.lateness import LateCells
from ..stragglers.loaders import late_batches
from ..stragglers.replay import ASSUMED_MS, Replay, with_usual_stage, without_lateness
from ..stragglers.straggler import Straggler
from ..stragglers.stragglers import FoundStragglers
from ..stragglers.variation import Variation
from .baseline_replay import BaselineReplay
from .slowed_peers import sped_up_peers
from .what_if import WhatIf, saving, what_if, what_if_saved, with_model_error

#: Fixes that remove one fault from the run; the verdict chooses among them.
FAULTS = ("imbalance", "input", "compute", "other")

# After a pause caches are cold and cores clock low. Compute on a CPU core loses this fraction of the
# pause, or of compute if that is shorter: the median of single ranks in one half of the pairs of
# benchmarks/scorecard/pairs.py.
_SLOWER_AFTER_PAUSE = 0.1


@dataclass(frozen=True)
class Faults:
    """The faults of a run, and the replays from which the gains are computed."""

    #: Steady steps in which starving ranks go at their loaders' pace.
    ledger: Ledger
    found: FoundStragglers
    #: The steps with the slow ranks fixed.
    fixed: Replay
    variation: Variation | None
    #: Whether the named ranks' loaders prefetch, so that the limit of the other loaders is unknown.
    peer_limit_unknown: bool

    @property
    def step_ms(self) -> float:
        return float(self.ledger.total.mean()) / 1e6

    @property
    def worth_fixing(self) -> list[Straggler]:
        """The stragglers that cost time."""
        return [one for one in self.found.stragglers if one.cost_ms.value > 0]

    def late_ns(self, cells: LateCells | None) -> Ints:
        """Return by how much late cells delay the last rank, per step."""
        if cells is None:
            return np.zeros(len(self.ledger), np.int64)
        return self.ledger.last - without_lateness(self.ledger, cells)


def gains_with_baseline(faults: Faults, baseline: Ledger, cores: CoreUse) -> list[WhatIf]:
    """Predict every fix from a baseline of the same job on the same number of ranks.

    Stages are fixed on all ranks after the named ranks are fixed. The baseline has no loader workers. If
    workers take CPU cores from compute, the predicted gain of faster input is an upper bound.
    """
    ledger = faults.ledger
    replay = BaselineReplay.of(ledger, baseline, *_late_and_named(faults), cores)
    shares = _shares_of_loss(faults, replay)
    gains = [
        what_if_saved(fix, ledger, replay.saved(share, replay.side_effects.get(fix, 0.0)))
        for fix, share in shares.items()
    ]
    if cores.busy_loaders:
        gains = [replace(gain, bound=_speeds_up_input(gain.fix, faults.found)) for gain in gains]
    return _with_bounds(gains, faults) + _what_could_shrink(faults)


def _speeds_up_input(fix: str, found: FoundStragglers) -> bool:
    """Whether a fix makes input faster."""
    if fix in ("input", "all"):
        return True
    fixes = {fix for one in found.stragglers if one.stage == "input" for fix in one.fixes}
    return fix in fixes or (fix == "imbalance" and bool(fixes))


def _shares_of_loss(faults: Faults, replay: BaselineReplay) -> dict[str, float]:
    """Return the share of the loss against the baseline that each fix wins back.

    The larger fault is fixed first: the slow ranks, or the stage that costs most on all ranks, including
    the slow ranks' part of it.
    """
    found, ranks = faults.found, faults.ledger.ranks
    nothing = np.zeros_like(replay.slower)
    named = nothing.copy()
    for one in found.stragglers:
        named |= replay.cells_of(one.stage, np.isin(ranks, one.ranks))
    shares = {
        fix: replay.share(nothing, replay.cells_of(one.stage, np.isin(ranks, one.ranks)))
        for one in faults.worth_fixing
        for fix in one.fixes
    }
    slow_ranks = replay.share(nothing, named)
    stages = {stage: replay.share(named, _all_of(stage, nothing)) for stage in STAGES}
    largest = max(stages, key=stages.__getitem__)
    if stages[largest] > slow_ranks:
        first = _all_of(largest, nothing)
        stages[largest] = replay.share(nothing, first)
        slow_ranks = replay.share(first, named)
        shares = {fix: min(share, slow_ranks) for fix, share in shares.items()}
    varying = _varying_compute(found, replay, stages["compute"])
    stages["compute"] -= varying
    shares |= stages
    if any(one.counts_as_imbalance for one in found.stragglers):
        shares["imbalance"] = slow_ranks + varying
    return _capped(shares, replay.share(nothing, ~nothing))


def _varying_compute(found: FoundStragglers, replay: BaselineReplay, compute: float) -> float:
    """Return the part of compute's share that is variation, and not slower compute.

    Compute that is slower on all ranks also varies more.
    """
    varying = sum(
        one.cost_ms.value * 1e6
        for one in found.stragglers
        if one.counts_as_imbalance and not one.ranks
    )
    varying = float(np.clip(varying / replay.loss, 0.0, 1.0)) if replay.loss > 0 else 0.0
    varying = min(varying, max(0.0, compute - replay.slower_compute))
    own_fault = varying >= replay.own_fault.get("compute", 0.0) * compute
    return min(varying, compute) if own_fault else 0.0


def _all_of(stage: str, cells: Bools) -> Bools:
    """Mark a stage of all ranks, stages × ranks."""
    return np.outer([stage == one for one in STAGES], np.ones(cells.shape[1], bool))


def _capped(shares: dict[str, float], everything: float) -> dict[str, float]:
    """Shrink the shares of stages so that all faults together win back no more than the whole loss.

    Each stage is replayed separately. If two stages are slow on one rank, both replays count that rank.
    """
    stages = sum(shares[stage] for stage in STAGES)
    left = max(0.0, everything - shares.get("imbalance", 0.0))
    shrink = min(1.0, left / stages) if stages > 0 else 1.0
    shrunk = {fix: share * (shrink if fix in STAGES else 1.0) for fix, share in shares.items()}
    if sum(shrunk.get(fix, 0.0) > 0 for fix in FAULTS) > 1:
        shrunk["all"] = everything
    return shrunk


def gains_without_baseline(faults: Faults, cores: CoreUse) -> list[WhatIf]:
    """Predict every fix by replaying the run's own steps.

    If ranks share CPU cores, compute becomes slower once no rank waits. The run does not show by how
    much, so the gains are upper bounds.
    """
    found, step_ms = faults.found, faults.step_ms
    faster = _faster_peers_ms(faults, cores)
    gains = []
    if any(one.counts_as_imbalance for one in found.stragglers):
        gains.append(_with_more_saved(_imbalance_gain(faults), list(faster.values()), step_ms))
    for one in faults.worth_fixing:
        more = [faster[one]] if faster else []
        for fix in one.fixes:
            gain = what_if_saved(fix, faults.ledger, one.cost_ms.scaled(1e6))
            gains.append(_with_more_saved(replace(gain, mostly_ms=0.0), more, step_ms))
    gains += [_stage_gain(stage, faults, cores) for stage in ("input", "other")]
    if cores.on_cpu:
        idle_ms = _idle_loaders_ms(faults, cores)
        gains = [
            _with_idle_loaders(with_model_error(gain, step_ms), found, idle_ms, step_ms)
            for gain in gains
        ]
    if cores.shared:
        gains = [replace(gain, bound=True) for gain in gains]
    return _with_bounds(gains, faults) + _what_could_shrink(faults)


def _late_and_named(faults: Faults) -> tuple[Bools, Bools]:
    """Mark the stages × ranks in which lateness varies from step to step, and those of named ranks."""
    ranks = np.array(faults.ledger.ranks)
    late, named = np.zeros((2, len(STAGES), len(ranks)), bool)
    for one in faults.found.stragglers:
        stage = STAGES.index(one.stage)
        late[stage] |= not one.ranks
        named[stage] |= np.isin(ranks, one.ranks)
    return late, named


def _with_bounds(gains: Sequence[WhatIf], faults: Faults) -> list[WhatIf]:
    """Mark the gains of fixing ranks as upper bounds if the limit of the other loaders is unknown."""
    if not faults.peer_limit_unknown:
        return list(gains)
    fixes = {"imbalance", "all"} | {
        one.fix for one in gains if one.fix.startswith(("rank:", "host:"))
    }
    return [replace(one, bound=one.bound or one.fix in fixes) for one in gains]


def _what_could_shrink(faults: Faults) -> list[WhatIf]:
    """Predict the gains of parts that every healthy step has: allreduce, and half the variation."""
    ledger = faults.ledger
    if len(ledger.ranks) < 2:
        return []
    # When the last rank would be ready if no named rank were slow or late.
    usual = faults.fixed.last - faults.late_ns(faults.found.named_late)
    rest = usual - (ledger.last - ledger.imbalance)
    return [
        what_if("variation", ledger, np.asarray(rest // 2)),
        replace(what_if("allreduce", ledger, ledger.allreduce), bound=True),
    ]


def _imbalance_gain(faults: Faults) -> WhatIf:
    ledger, variation, uncertainty = faults.ledger, faults.variation, 0.0
    saved = faults.fixed.saved(ledger) + faults.late_ns(faults.found.late)
    if variation is not None:
        saved, uncertainty = saved + variation.saved, variation.uncertainty_ns
    return what_if("imbalance", ledger, saved, faults.fixed.fixed, uncertainty)


def _faster_peers_ms(faults: Faults, cores: CoreUse) -> dict[Straggler, Mean]:
    """Return the milliseconds per step by which other ranks become faster once each straggler is fixed.

    The result is empty if ranks share no cores or are on several machines.
    """
    if cores.machine is None:
        return {}
    named = {rank for one in faults.found.stragglers for rank in one.ranks}
    return {
        one: sped_up_peers(faults.ledger, one, named, cores.machine).scaled(1e-6)
        for one in faults.found.stragglers
    }


def _with_more_saved(gain: WhatIf, more_ms: Sequence[Mean], step_ms: float) -> WhatIf:
    """Return the gain if it also saves these milliseconds."""
    saved = gain.saved_ms
    for more in more_ms:
        saved = saved.minus(more.scaled(-1.0))
    return saving(gain, saved, step_ms)


def _idle_loaders_ms(faults: Faults, cores: CoreUse) -> float:
    """Return the most that compute and allreduce gain from idle loaders, milliseconds per step.

    Busy loaders take CPU cores from the ranks, but loaders that wait for data do not. The run does not
    show which they do.
    """
    ledger = faults.ledger
    if not cores.taken_by_loaders:
        return 0.0
    slowed = (ledger.by_cause("compute") + ledger.allreduce)[late_batches(ledger)]
    return cores.taken_by_loaders * float(slowed.sum()) / len(ledger) / 1e6


def _with_idle_loaders(
    gain: WhatIf, found: FoundStragglers, idle_ms: float, step_ms: float
) -> WhatIf:
    """Extend a gain's interval by the possible gain from idle loaders."""
    ci95 = gain.saved_ms.ci95
    if ci95 is None or not idle_ms or not _speeds_up_input(gain.fix, found):
        return gain
    return saving(gain, Mean(gain.saved_ms.value, (ci95[0], ci95[1] + idle_ms)), step_ms)


def _stage_gain(stage: str, faults: Faults, cores: CoreUse) -> WhatIf:
    """Predict the gain if a stage takes the assumed time, after the named ranks are fixed."""
    ledger, found = faults.ledger, faults.found
    saved = faults.fixed.last - with_usual_stage(ledger, stage, faults.fixed.last, found.healthy)
    saved = saved - faults.late_ns(None if found.late is None else found.late.of_stage(stage))
    if cores.on_cpu and not cores.shared:
        # Without a pause before it, compute is faster. On shared cores gains are bounds, and waiting
        # ranks leave their cores to the others.
        shorter = np.minimum(np.maximum(saved, 0), ledger.by_cause("compute"))
        saved = saved + np.asarray(_SLOWER_AFTER_PAUSE * shorter, np.int64)
    # The time that a stage needs is unknown: at most its whole time.
    uncertainty = min(ASSUMED_MS * 1e6, float(ledger.by_cause(stage).mean()))
    return what_if(stage, ledger, saved, uncertainty_ns=uncertainty)

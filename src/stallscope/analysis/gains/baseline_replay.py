"""Split the loss of a run against a matching baseline among its faults.

Ranks that wait leave CPU cores and memory bandwidth to the others. So compute looks faster, and exposed
allreduce slower, than both are once no rank waits. A baseline of the same job shows their real times:
with all faults fixed, a step takes as long as in the baseline. Each fault's share of the loss comes from
a replay that puts the remaining faults into the baseline's steps. So no fix predicts a step below the
baseline's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from stallscope.arrays.stats import Mean, mean_with_interval
from stallscope.arrays.types import Bools, Ints
from stallscope.words import STAGES, FixKind, PartByCause, Stage

from ..ledger.ledger import Ledger, mean_over_ranks
from ..setup import CoreUse

_COMPUTE = STAGES.index("compute")
# More cells do not make the mean of the last rank's arrival more precise.
_MOST_CELLS = 2**20
# Fraction of the baseline's step: stages of healthy runs differ by less.
_LEAST = 0.01
# A rank is slower than in the baseline if it exceeds it by this many half intervals of a rank's mean.
_BEYOND_CHANCE = 1.5
#: Allreduce takes longer after ranks have waited: by up to this fraction of the waiting.
ALLREDUCE_AFTER_WAITING = 0.25
# A stage that costs less than this fraction of the largest fault is slower because of that fault: a
# fault with a thread per core takes less than half of its duration from any other rank.
_OWN_FAULT = 0.5
# If all ranks are on one machine, the most that such a fault takes is known. This is a margin for noise.
_BEYOND_MOST_TAKEN = 1.2
# Ranks that wake up together compete more for the cores.
_LEAST_OWN_FAULT = 1 / 3
# The pairs of benchmarks/scorecard/pairs.py show no error beyond both runs' intervals. They cannot show
# one below this fraction of the step.
_MODEL_ERROR = 0.05
# On cores that are not shared, too: after a pause caches are cold.
_OWN_FAULT_UNSHARED = 0.15


@dataclass(frozen=True)
class BaselineReplay:
    """Steps of a run and of a baseline with the same number of ranks."""

    #: Stages × ranks: which have a fault or are slower than in the baseline.
    slower: Bools
    #: Ranks that are named for any stage.
    slow_ranks: Bools
    #: Stages × sampled steps × ranks of the run and of the baseline, nanoseconds.
    actual: Ints
    usual: Ints
    #: Step time of the run and of the baseline, nanoseconds.
    step: Mean
    usual_step: Mean
    #: Nanoseconds by which allreduce exceeds the baseline's, less the part that waiting explains.
    slower_allreduce: float
    #: The fraction by which a fully fixed step may still differ from the baseline's.
    model_error: float
    #: Per entry: below this fraction of the largest fault, it is slower because of that fault.
    own_fault: Mapping[PartByCause, float]
    #: The largest share of its speed that compute loses to loaders that work at the same time.
    taken_by_loaders: float
    #: Per stage, nanoseconds per step that its fix may win back beyond its share.
    side_effects: Mapping[FixKind, float] = field(default_factory=dict)

    @classmethod
    def of(
        cls, ledger: Ledger, baseline: Ledger, late: Bools, named: Bools, cores: CoreUse
    ) -> BaselineReplay:
        """Compute the figures of both runs that every replay needs.

        Args:
            ledger: steady steps of the run.
            baseline: steady steps of the baseline.
            late: stages × ranks in which lateness varies from step to step.
            named: stages × ranks in which a named rank is slow.
            cores: how the ranks use CPU cores.
        """
        count = max(len(ledger), len(baseline))
        count = min(count, max(1, _MOST_CELLS // len(ledger.ranks)))
        replay = cls(
            late | named | _slower(ledger, baseline, named),
            np.asarray(named.any(axis=0)),
            _some_steps(ledger, count),
            _some_steps(baseline, count),
            mean_with_interval(ledger.total),
            mean_with_interval(baseline.total),
            max(0.0, longer_allreduce(ledger, baseline).value),
            _MODEL_ERROR if cores.on_cpu else 0.0,
            _own_fault(cores),
            cores.taken_by_loaders,
        )
        return replay._without_side_effects(named)

    @property
    def loss(self) -> float:
        """Return the nanoseconds by which the step is longer than the baseline's, at least 0."""
        return max(0.0, self.step.value - self.usual_step.value)

    def share(self, first: Bools, then: Bools) -> float:
        """Return the share of the loss that fixing stages of ranks wins back, from 0 to 1.

        Args:
            first: stages × ranks that are fixed before and do not count.
            then: stages × ranks for which the share is returned.
        """
        if self._everything <= 0:
            return 0.0
        won = self._longer(first) - self._longer(first | then)
        return float(np.clip(won / self._everything, 0.0, 1.0))

    @property
    def share_of_all(self) -> float:
        """Return the share of the loss that fixing everything wins back: 1, or 0 without a loss."""
        return self.share(np.zeros_like(self.slower), np.ones_like(self.slower))

    @cached_property
    def _everything(self) -> float:
        """Compute the nanoseconds per step that fixing all faults wins back in the replay."""
        return self._longer(np.zeros_like(self.slower)) + self.slower_allreduce

    @property
    def slower_compute(self) -> float:
        """Return the share of the loss explained by compute that is slower on average over all ranks."""
        longer = float(self.actual[_COMPUTE].mean() - self.usual[_COMPUTE].mean())
        return float(np.clip(longer / self.loss, 0.0, 1.0)) if self.loss > 0 else 0.0

    def saved(self, share: float, side_effect: float = 0.0) -> Mean:
        """Return the nanoseconds per step saved by winning back a share of the loss.

        Args:
            share: of the loss.
            side_effect: nanoseconds that this fix may also win back; they extend the interval.
        """
        value = share * self.loss
        if self.step.ci95 is None or self.usual_step.ci95 is None:
            return Mean(value, None)
        sampled = self.step.minus(self.usual_step).ci95 or (0.0, 0.0)
        uncertainty = float(
            np.hypot((sampled[1] - sampled[0]) / 2, self.model_error * self.usual_step.value)
        )
        # A side effect that costs less than nothing is chance.
        most = min(value + max(0.0, side_effect), self.loss)
        above = uncertainty * (most / self.loss if self.loss > 0 else 0.0)
        return Mean(value, (value - share * uncertainty, most + above))

    def cells_of(self, stage: Stage, ranks: Bools) -> Bools:
        """Mark the stages × ranks that are fixed together with a stage of slow ranks.

        Other stages in which these ranks are slower than their peers belong to the same fault. Times
        that all ranks have in common stay.
        """
        peers = ~(ranks | self.slow_ranks)
        if not peers.any():
            return np.tile(ranks, (len(STAGES), 1))
        actual = self.actual.mean(axis=1)
        usual = np.median(actual[:, peers], axis=1, keepdims=True)
        slower = actual > usual + _LEAST * self.usual_step.value
        slower[STAGES.index(stage)] = True
        return np.asarray(ranks & slower)

    def _without_side_effects(self, named: Bools) -> BaselineReplay:
        """Remove the stages that are slower only because of the largest fault.

        These are stages for which no rank is named and which cost less than the fraction ``own_fault``
        of the largest fault.
        """
        costs = {}
        for stage in STAGES:
            other_stages = np.array([[name != stage] for name in STAGES])
            costs[stage] = self._longer(other_stages | named)
        worst = max(*costs.values(), self._longer(~named))
        least = {entry: share * worst for entry, share in self.own_fault.items()}
        keep = {stage: costs[stage] >= least.get(stage, 0.0) for stage in STAGES}
        if keep["input"] and self._loaders_may_slow_compute:
            keep["compute"] = False
        enough = self.slower_allreduce >= least.get("allreduce", 0.0)
        allreduce = self.slower_allreduce if enough else 0.0
        slower = self.slower & (np.array(list(keep.values()))[:, None] | named)
        side_effects: dict[FixKind, float] = {
            stage: costs[stage] for stage in STAGES if not keep[stage]
        }
        if keep["compute"] and self._loaders_may_slow_compute:
            # Input is hardly late, but its loaders may slow compute.
            side_effects["input"] = costs["input"] + costs["compute"]
        return replace(self, slower=slower, slower_allreduce=allreduce, side_effects=side_effects)

    @property
    def _loaders_may_slow_compute(self) -> bool:
        """Whether loaders that work at the same time explain the slower compute."""
        left = (1.0 - self.taken_by_loaders) * float(self.actual[_COMPUTE].mean())
        usual = float(self.usual[_COMPUTE].mean())
        return self.taken_by_loaders > 0 and left <= _BEYOND_MOST_TAKEN * usual

    def _longer(self, fixed: Bools) -> float:
        """Return the nanoseconds per step by which the last rank is ready later than in the baseline."""
        stays = self.slower & ~fixed
        if not stays.any():
            return 0.0
        last = _last(np.where(stays[:, None], self.actual, self.usual))
        return float((last - self._usual_last).mean())

    @cached_property
    def _usual_last(self) -> Ints:
        return _last(self.usual)


def _own_fault(cores: CoreUse) -> dict[PartByCause, float]:
    if not cores.shared:
        return {"compute": _OWN_FAULT_UNSHARED} if cores.on_cpu else {}
    share = _OWN_FAULT
    if cores.machine is not None:
        share = max(_LEAST_OWN_FAULT, _BEYOND_MOST_TAKEN * cores.machine.most_taken)
    return {**dict.fromkeys(STAGES, share), "allreduce": 1.0}


def longer_allreduce(ledger: Ledger, baseline: Ledger) -> Mean:
    """Return the excess of allreduce over the baseline's, less the part that waiting explains, in ns."""
    longer = mean_with_interval(ledger.allreduce).minus(mean_with_interval(baseline.allreduce))
    waiting = max(0.0, float(ledger.imbalance.mean() - baseline.imbalance.mean()))
    return longer.minus(Mean(ALLREDUCE_AFTER_WAITING * waiting, (0.0, 0.0)))


def _slower(ledger: Ledger, baseline: Ledger, named: Bools) -> Bools:
    """Mark the stages × ranks that are slower than in the baseline.

    Either the unnamed ranks are slower on average beyond their interval, or a single rank is by far.
    """
    least = _LEAST * float(baseline.total.mean())
    actual, usual = ledger.rank_means, baseline.rank_means
    others = np.flatnonzero(~named.any(axis=0))
    others = others if len(others) else np.arange(named.shape[1])
    slower = []
    for stage in STAGES:
        above = actual[stage] - usual[stage]
        of_all = _over_ranks(ledger, stage, others).minus(_over_ranks(baseline, stage, others))
        low, high = of_all.ci95 or (0.0, 0.0)
        of_one = (high - low) / 2 * np.sqrt(len(others))
        slower.append(above > (0.0 if low > 0 else max(least, _BEYOND_CHANCE * of_one)))
    return np.array(slower)


def _over_ranks(ledger: Ledger, stage: Stage, ranks: Ints) -> Mean:
    return mean_with_interval(ledger.cells.per_step(mean_over_ranks, stage, ranks))


def _last(stages: Ints) -> Ints:
    """Return when the last rank's gradients are ready, per step."""
    return np.asarray(stages.sum(axis=0).max(axis=1))


def _some_steps(ledger: Ledger, count: int) -> Ints:
    """Sample stages × this many steps × ranks, evenly spread; steps repeat if there are fewer."""
    steps, again = np.unique(
        np.linspace(0, len(ledger) - 1, count).astype(np.int64), return_inverse=True
    )
    return np.stack([ledger.cells.rows(stage, steps)[again] for stage in STAGES])

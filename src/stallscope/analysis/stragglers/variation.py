"""Estimate the cost of work that varies on every rank: batches of different lengths, busy neighbours.

A late step stands out (lateness.py) only if most steps are alike. If all steps vary, none stands out,
but waiting for the rank with the longest batch costs every step. A baseline shows how long equal ranks
wait for each other; without one, only a large part of the step counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stallscope.arrays.blocks import Block
from stallscope.arrays.stats import Mean, mean_with_interval
from stallscope.arrays.types import Floats, Ints
from stallscope.words import STAGES, Stage

from ..ledger.ledger import Ledger
from .lateness import Straggler
from .replay import Replay, without_lateness
from .stragglers import FoundStragglers

# A smaller part of the step is not reported, because two runs of one job differ by this much.
_WORTH = 0.005
# Without a baseline the usual variation is unknown.
_WORTH_UNCOMPARED = 0.15
_STAGE: Stage = "compute"
_PARTS = 20
# If more cells than this are long, there is no usual length for them to exceed.
_MOST_LONG = 0.5


@dataclass(frozen=True)
class Variation:
    """Waiting caused by compute that varies on all ranks alike."""

    straggler: Straggler
    #: Per step, nanoseconds saved if compute varied no more than the baseline's.
    saved: Ints
    #: Half the interval of the baseline's imbalance.
    uncertainty_ns: float


def variation(
    ledger: Ledger, baseline: Ledger | None, detection: FoundStragglers, fixed: Replay
) -> Variation | None:
    """Estimate the imbalance that neither named ranks nor the baseline explain; None if it is small.

    Args:
        ledger: steady steps.
        baseline: steady steps of the baseline.
        detection: stragglers found so far.
        fixed: the steps with the slow ranks fixed.
    """
    if len(detection.healthy) < 2 or detection.same_rank_last:
        return None
    rest = fixed.last - (ledger.last - ledger.imbalance)
    if detection.named_late is not None:
        rest = rest - (ledger.last - without_lateness(ledger, detection.named_late))
    seen = any(
        (straggler.pattern, straggler.stage) == ("rotating", _STAGE)
        for straggler in detection.stragglers
    )
    compared = baseline if baseline is not None and _alike(ledger, baseline) else None
    if compared is None and seen:
        return None
    usual = Mean(0.0, (0.0, 0.0)) if compared is None else _usual(ledger, compared)
    cost = mean_with_interval(rest).minus(usual)
    worth = _WORTH_UNCOMPARED if compared is None else _WORTH
    if cost.ci95 is None or cost.ci95[0] < worth * float(ledger.total.mean()):
        return None
    if _varying_stage(ledger, compared, detection) != _STAGE:
        return None
    excess, share = _longer(ledger, compared, detection)
    return Variation(
        Straggler(
            pattern="rotating",
            ranks=(),
            hosts=(),
            stage=_STAGE,
            excess_ms=excess.scaled(1e-6),
            late_share=share,
            cost_ms=cost.scaled(1e-6),
        ),
        np.asarray(rest - round(usual.value), np.int64),
        0.0 if usual.ci95 is None else (usual.ci95[1] - usual.ci95[0]) / 2,
    )


def _alike(ledger: Ledger, baseline: Ledger) -> bool:
    """Whether both have as many ranks: the slowest of more ranks is slower by chance alone."""
    return len(baseline) > 0 and len(baseline.ranks) == len(ledger.ranks)


def _usual(ledger: Ledger, baseline: Ledger) -> Mean:
    """Return the baseline's imbalance, scaled to this run's longer compute."""
    longer = _reference_arrives(ledger) / _reference_arrives(baseline)
    return mean_with_interval(baseline.imbalance).scaled(max(1.0, longer))


def _reference_arrives(ledger: Ledger) -> float:
    return float((ledger.last - ledger.imbalance).mean())


def _varying_stage(ledger: Ledger, baseline: Ledger | None, detection: FoundStragglers) -> str:
    """Return the stage in which the last healthy rank exceeds the reference rank most."""
    last = np.where(np.isin(ledger.critical, detection.slow), ledger.second, ledger.critical)
    excess = {}
    for name in STAGES:
        difference = ledger.of(name, last) - ledger.of(name, ledger.reference)
        usual = 0.0 if baseline is None else float(baseline.excess(name).mean())
        excess[name] = float(difference.mean()) - usual
    return max(excess, key=lambda name: excess[name])


def _longer(
    ledger: Ledger, baseline: Ledger | None, detection: FoundStragglers
) -> tuple[Mean, float]:
    """Estimate how much longer the long cells are, and the share of steps that have one.

    If a share q of all cells takes d longer, the mean grows by q·d and the variance between ranks by
    q·d², for small q. If these do not fit a few long cells, return the last rank's mean excess over the
    reference rank.
    """
    by_last = mean_with_interval(ledger.excess(_STAGE))
    if baseline is None or len(ledger) < 2 * _PARTS or len(baseline) < 2 * _PARTS:
        return by_last, 1.0
    moments = _moments(ledger, detection.healthy)
    usual = _moments(baseline, range(len(baseline.ranks)))
    mean, variance = moments.mean(axis=0) - usual.mean(axis=0)
    chance = np.sqrt(sum(parts.var(axis=0, ddof=1) / len(parts) for parts in (moments, usual)))
    surely = bool((np.array([mean, variance]) > 2 * chance).all())
    if not surely or mean**2 > _MOST_LONG * variance:
        usual_excess = mean_with_interval(baseline.excess(_STAGE))
        return by_last.minus(usual_excess), 1.0
    sd = np.hypot(
        _jackknifed(moments, usual.mean(axis=0)), _jackknifed(usual, moments.mean(axis=0))
    )
    by = variance / mean
    share = min(1.0, len(detection.healthy) * mean / by)
    return Mean(by, (by - 2 * float(sd), by + 2 * float(sd))), share


def _moments(ledger: Ledger, ranks: Sequence[int]) -> Floats:
    """Return the mean and the mean variance between ranks for parts of a run: parts × 2."""
    (moments,) = ledger.cells.gathered(_moments_of_steps, np.array(ranks, np.int64))
    parts = np.array_split(moments, _PARTS, axis=1)
    return np.array([part.mean(axis=1) for part in parts])


def _moments_of_steps(block: Block, ranks: Ints) -> tuple[Floats]:
    """Kernel: return the mean and the variance between ranks, 2 × steps."""
    stage = block.of(_STAGE, ranks)
    return (np.array([stage.mean(axis=1), stage.var(axis=1, ddof=1)]),)


def _jackknifed(moments: Floats, against: Floats) -> float:
    """Return the jackknife standard error of the ratio of both moments' differences."""
    n = len(moments)
    without = (moments.sum(axis=0) - moments) / (n - 1) - against
    ratio = without[:, 1] / without[:, 0]
    return float(np.sqrt((n - 1) * ratio.var()))

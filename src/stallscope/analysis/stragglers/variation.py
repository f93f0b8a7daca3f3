"""Work that varies from step to step on every rank: batches of different lengths, busy neighbours.

A late step stands out (lateness.py) only where most are alike. Where all of them vary, nothing does,
and waiting for whichever rank has the longest batch still costs every step. What ranks that are all
alike make each other wait is known from a baseline; without one, only a large part of the step counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stallscope.arrays.blocks import Block
from stallscope.arrays.stats import Mean, mean_with_interval
from stallscope.arrays.types import Floats, Ints

from ..ledger.ledger import STAGES, Ledger
from .replay import Replay, without_lateness
from .straggler import Straggler
from .stragglers import Found

# Less of the step is not worth a word: two runs of one job differ by as much.
_WORTH = 0.005
# Without a baseline it is not known what is usual.
_WORTH_UNCOMPARED = 0.15
_STAGE = "compute"
_PARTS = 20
# Where more cells than this are longer, there is no usual length that some of them exceed.
_MOST_LONG = 0.5


@dataclass(frozen=True)
class Variation:
    """Waiting that goes back to compute that varies, on no rank more than on others."""

    straggler: Straggler
    #: Per step, nanoseconds that would be saved if it varied no more than the baseline's.
    saved: Ints
    #: Half the interval of what it is held against.
    uncertainty_ns: float


def variation(
    ledger: Ledger, baseline: Ledger | None, found: Found, healed: Replay
) -> Variation | None:
    """Imbalance that named ranks do not explain, beyond the baseline's; None where that is little.

    Args:
        ledger: steady steps.
        baseline: steady steps of the baseline.
        found: stragglers found so far.
        healed: the steps with the slow ranks healed.
    """
    if len(found.healthy) < 2:
        return None
    rest = healed.last - (ledger.last - ledger.imbalance)
    if found.named_late is not None:
        rest = rest - (ledger.last - without_lateness(ledger, found.named_late))
    seen = any((one.pattern, one.stage) == ("rotating", _STAGE) for one in found.stragglers)
    compared = baseline if baseline is not None and _alike(ledger, baseline) else None
    if compared is None and seen:
        return None
    usual = Mean(0.0, (0.0, 0.0)) if compared is None else _usual(ledger, compared)
    cost = mean_with_interval(rest).minus(usual)
    worth = _WORTH_UNCOMPARED if compared is None else _WORTH
    if cost.ci95 is None or cost.ci95[0] < worth * float(ledger.total.mean()):
        return None
    if _varying_stage(ledger, compared, found) != _STAGE:
        return None
    excess, share = _longer(ledger, compared, found)
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
    """The slowest of more ranks is slower by chance alone: only as many can be compared."""
    return len(baseline) > 0 and len(baseline.ranks) == len(ledger.ranks)


def _usual(ledger: Ledger, baseline: Ledger) -> Mean:
    """The baseline's imbalance; what is longer on all ranks may vary by as much more."""
    longer = _reference_arrives(ledger) / _reference_arrives(baseline)
    return mean_with_interval(baseline.imbalance).scaled(max(1.0, longer))


def _reference_arrives(ledger: Ledger) -> float:
    return float((ledger.last - ledger.imbalance).mean())


def _varying_stage(ledger: Ledger, baseline: Ledger | None, found: Found) -> str:
    """The stage by which the last of the ranks that are not slow exceeds the reference rank most."""
    last = np.where(np.isin(ledger.critical, found.slow), ledger.second, ledger.critical)
    excess = {}
    for name in STAGES:
        own = ledger.of(name, last) - ledger.of(name, ledger.reference)
        usual = 0.0 if baseline is None else float(baseline.excess(name).mean())
        excess[name] = float(own.mean()) - usual
    return max(excess, key=lambda name: excess[name])


def _longer(ledger: Ledger, baseline: Ledger | None, found: Found) -> tuple[Mean, float]:
    """How much longer compute is where it is longer, and the share of steps in which it is on some rank.

    If a share q of all cells takes d longer, the mean grows by q·d and the variance between ranks by
    q·d², for small q. Where these do not fit a few longer cells, the last rank's mean excess over the
    reference rank is given.
    """
    by_last = mean_with_interval(ledger.excess(_STAGE))
    if baseline is None or len(ledger) < 2 * _PARTS or len(baseline) < 2 * _PARTS:
        return by_last, 1.0
    own = _moments(ledger, found.healthy)
    usual = _moments(baseline, range(len(baseline.ranks)))
    mean, variance = own.mean(axis=0) - usual.mean(axis=0)
    chance = np.sqrt(sum(parts.var(axis=0, ddof=1) / len(parts) for parts in (own, usual)))
    surely = bool((np.array([mean, variance]) > 2 * chance).all())
    if not surely or mean**2 > _MOST_LONG * variance:
        usual_excess = mean_with_interval(baseline.excess(_STAGE))
        return by_last.minus(usual_excess), 1.0
    sd = np.hypot(_jackknifed(own, usual.mean(axis=0)), _jackknifed(usual, own.mean(axis=0)))
    by = variance / mean
    share = min(1.0, len(found.healthy) * mean / by)
    return Mean(by, (by - 2 * float(sd), by + 2 * float(sd))), share


def _moments(ledger: Ledger, ranks: Sequence[int]) -> Floats:
    """Parts of a run × (mean, mean variance between ranks)."""
    (moments,) = ledger.cells.gathered(_moments_of_steps, np.array(ranks, np.int64))
    parts = np.array_split(moments, _PARTS, axis=1)
    return np.array([part.mean(axis=1) for part in parts])


def _moments_of_steps(block: Block, ranks: Ints) -> tuple[Floats]:
    """(Mean, variance between ranks) × steps."""
    stage = block.of(_STAGE, ranks)
    return (np.array([stage.mean(axis=1), stage.var(axis=1, ddof=1)]),)


def _jackknifed(moments: Floats, against: Floats) -> float:
    """The standard error of the ratio of both moments' differences, from leaving out part by part."""
    n = len(moments)
    without = (moments.sum(axis=0) - moments) / (n - 1) - against
    ratio = without[:, 1] / without[:, 0]
    return float(np.sqrt((n - 1) * ratio.var()))

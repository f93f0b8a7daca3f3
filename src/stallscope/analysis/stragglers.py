"""Is a rank or host slow, or is the slowest of many only the slowest by chance?

The share of steps in which a rank is critical cannot tell: tests on it raise false alarms in up to
half of all clean runs. The laps can: lap = the time from a rank's last reduction to its gradients
being ready, on its own clock. A rank is named where its laps exceed its peers' beyond what their
noise (autocorrelated over steps) and their own spread (across ranks) explain.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import stats as scipy_stats

from .stats import Floats, autocorrelation_time

# Rank, host and tail tests share a false-alarm rate of 2 %.
_ALPHA = 0.02 / 3
# Excesses below 2 % are the speed differences of any healthy fleet.
_INDIFFERENCE = np.log(1.02)
_FEWEST_INDEPENDENT = 20
# From this many ranks on their spread says something; from the second on, robustly.
_SPREAD_RANKS = 8
_ROBUST_RANKS = 32
_MAD_TO_SD = 1.4826


@dataclass(frozen=True)
class Stragglers:
    """Who is slow, as positions among the tested; ``too_few_steps`` where nothing can be said."""

    named: tuple[int, ...]
    #: Mean excess of every tested one's laps over its peers', as a fraction of the lap.
    excess: Floats
    too_few_steps: bool


def slow_ranks(laps: npt.NDArray[np.int64]) -> Stragglers:
    """Ranks that are persistently slow.

    Args:
        laps: steps × ranks, nanoseconds, positive.
    """
    n, ranks = laps.shape
    nobody = Stragglers((), np.zeros(ranks), too_few_steps=True)
    if ranks < 2 or n < _FEWEST_INDEPENDENT:
        return nobody
    x = np.log(np.maximum(laps, 1))
    tau, sigma = _noise(x)
    if n / tau < _FEWEST_INDEPENDENT:
        return nobody
    means = x.mean(axis=0)
    excess = np.array([means[r] - np.median(np.delete(means, r)) for r in range(ranks)])
    scatter = sigma * np.sqrt(tau / n) * np.sqrt(1 + _median_loss(ranks) / (ranks - 1))
    freedom = 0.6 * (ranks - 1) * (n / tau - 1)
    limit = scipy_stats.t.ppf(1 - _ALPHA / ranks, freedom)
    slow = (excess - _INDIFFERENCE) > limit * max(scatter, 1e-12)
    slow &= _stands_out(means)
    return Stragglers(tuple(np.flatnonzero(slow).tolist()), np.expm1(excess), too_few_steps=False)


def slow_hosts(laps: npt.NDArray[np.int64], hosts: tuple[str, ...]) -> tuple[str, ...]:
    """Hosts that are persistently slow: the same test on the medians over each host's ranks."""
    names = sorted(set(hosts))
    # A host with one rank is that rank: nothing is added by naming it twice.
    if len(names) < 2 or len(names) == len(hosts):
        return ()
    own = np.array(hosts)
    # The lower median: with two ranks on a host, one slow rank is not yet a slow host.
    medians = [np.quantile(laps[:, own == name], 0.5, axis=1, method="lower") for name in names]
    return tuple(names[index] for index in slow_ranks(np.stack(medians, axis=1)).named)


def _noise(x: Floats) -> tuple[float, float]:
    """τ and the standard deviation of the median rank's laps, without what all ranks share."""
    n, ranks = x.shape
    own = x - x.mean(axis=1, keepdims=True)
    own = own - own.mean(axis=0)
    if ranks == 2:
        # With two ranks the difference of the pair is all there is; a drift would inflate τ.
        trend = np.arange(n) - (n - 1) / 2
        own = own - np.outer(trend, trend @ own / (trend @ trend))
    # τ of up to 64 ranks: their median does not change with more, the time does.
    chosen = np.unique(np.linspace(0, ranks - 1, min(ranks, 64)).astype(int))
    tau = float(np.median([autocorrelation_time(own[:, r]) for r in chosen]))
    sigma = float(np.median(own.std(axis=0, ddof=1))) * np.sqrt(ranks / (ranks - 1))
    return tau, sigma


def _median_loss(ranks: int) -> float:
    """How much more the median of the other ranks' means scatters than their mean would."""
    return {2: 1.0, 3: 1.0, 4: 1.35}.get(ranks, float(np.pi / 2))


def _stands_out(means: Floats) -> npt.NDArray[np.bool_]:
    """Whether each rank lies outside its peers' own spread; with few ranks there is none to see."""
    ranks = len(means)
    if ranks < _SPREAD_RANKS:
        return np.ones(ranks, bool)
    if ranks >= _ROBUST_RANKS:
        centre = np.median(means)
        spread = _MAD_TO_SD * np.median(np.abs(means - centre))
        limit = scipy_stats.norm.ppf(1 - _ALPHA / ranks)
        return np.asarray(means - centre > limit * spread)
    total, squares = means.sum(), (means**2).sum()
    others = (total - means) / (ranks - 1)
    variance = np.maximum(squares - means**2 - (ranks - 1) * others**2, 0) / (ranks - 2)
    limit = scipy_stats.t.ppf(1 - _ALPHA / ranks, ranks - 2)
    return np.asarray(means - others > limit * np.sqrt(variance * (1 + 1 / (ranks - 1))))

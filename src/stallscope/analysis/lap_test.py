"""Is a rank or host slow, or is the slowest of many only the slowest by chance?

The share of steps in which a rank is critical cannot tell: tests on it raise false alarms in up to
half of all clean runs. The laps can: lap = the time from the reduction before to a rank's gradients
being ready. A rank is named where its laps exceed its peers' beyond what their noise (autocorrelated
over steps) and their own spread (across ranks) explain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import stats as scipy_stats

from .ledger import Ledger
from .stats import Floats, autocorrelation_time, robust_sd

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

#: Rank, host and burst tests share a false-alarm rate of 2 %.
ALPHA = 0.02 / 3
#: Excesses below 2 % are the speed differences of any healthy fleet; of a few ranks, whose own spread
#: says nothing, those below 4 %.
INDIFFERENCE = 0.02
_INDIFFERENCE_OF_FEW = 0.04
#: With fewer independent steps τ itself is uncertain, and only a rank is named whose fast laps are so
#: many times the others' slow ones.
FEWEST_INDEPENDENT = 20
_GLARING = 1.5
# From this many ranks on their spread says something; from the second on, robustly.
_SPREAD_RANKS = 8
_ROBUST_RANKS = 32
# A host is slow if so many of its ranks are.
_MOST_OF_A_HOST = 0.75
# τ is the median over this many ranks at most: more do not change it, they only take time.
_RANKS_FOR_TAU = 64


@dataclass(frozen=True)
class SlowOnes:
    """Positions of the slow ones among the tested; ``too_few_steps`` where nothing can be said."""

    named: tuple[int, ...]
    #: Steps after which a lap has forgotten the one before.
    tau: float
    too_few_steps: bool


def indifference(ranks: int) -> float:
    """By which fraction healthy ranks differ in speed, when there are so many."""
    return INDIFFERENCE if ranks >= _SPREAD_RANKS else _INDIFFERENCE_OF_FEW


def slow_ranks(ledger: Ledger, tested: Sequence[int], blind_ns: float = 0.0) -> SlowOnes:
    """Ranks that are persistently slow among those at the positions ``tested``.

    Args:
        ledger: steady steps.
        blind_ns: nobody is named for less; the completion skew where clocks were aligned by it.
    """
    shares = ledger.measured[:, tested].mean(axis=0) if len(ledger) else np.ones(len(tested))
    return _slow(ledger.arrival[:, tested], np.asarray(shares), blind_ns)


def slow_hosts(
    ledger: Ledger, hosts: Sequence[str], blind_ns: float = 0.0
) -> tuple[tuple[str, ...], SlowOnes | None]:
    """Hosts that are persistently slow: the same test on the medians over each host's ranks."""
    names = list(dict.fromkeys(hosts))
    # A host with one rank is that rank: nothing is added by naming it twice.
    if len(names) < 2 or len(names) == len(hosts) or not len(ledger):
        return (), None
    own = np.array(hosts)
    columns = [np.flatnonzero(own == name) for name in names]
    found = _slow(_medians(ledger.arrival, columns), np.ones(len(names)), blind_ns)
    if not found.named:
        return (), found
    # One very slow rank lifts its host's median a little: every host is tested without its slowest, too.
    means = np.log(np.maximum(ledger.arrival, 1), dtype=np.float32).mean(axis=0, dtype=np.float64)
    fewer = [_without_slowest(ranks, means) for ranks in columns]
    again = _slow(_medians(ledger.arrival, fewer), np.ones(len(names)), blind_ns)
    slow = tuple(
        names[index]
        for index in found.named
        if index in again.named and _most_are_slow(means, own == names[index])
    )
    return slow, found


def _medians(arrival: Ints, columns: Sequence[Ints]) -> Ints:
    """n × hosts: per step the lower median over each host's ranks."""
    medians = np.empty((len(columns), len(arrival)), np.int64)
    for index, ranks in enumerate(columns):
        laps = np.ascontiguousarray(arrival[:, ranks])
        # The lower median: with two ranks on a host, one slow rank is not yet a slow host.
        low = (laps.shape[1] - 1) // 2
        medians[index] = np.partition(laps, low, axis=1)[:, low]
    return medians.T


def _without_slowest(ranks: Ints, means: Floats) -> Ints:
    return ranks if len(ranks) < 2 else np.delete(ranks, means[ranks].argmax())


def _most_are_slow(means: Floats, own: Bools) -> bool:
    """Whether a host's ranks are slow; two slow ones of eight lift its median, too."""
    over = means[own] - np.median(means[~own])
    return bool((over > np.log1p(INDIFFERENCE)).mean() >= _MOST_OF_A_HOST)


def _slow(laps: Ints, shares: Floats, blind_ns: float) -> SlowOnes:
    """The test.

    Args:
        laps: steps × ranks, nanoseconds.
        shares: per rank the share of its steps that were measured; in the others peers stand in.
    """
    n, ranks = laps.shape
    if ranks < 2 or n < FEWEST_INDEPENDENT:
        return SlowOnes((), 1.0, too_few_steps=True)
    # Single precision: a millionth of a lap is all that is lost.
    x = np.log(np.maximum(laps, 1), dtype=np.float32)
    step_mean = x.mean(axis=1, dtype=np.float64)
    own = x - step_mean.astype(np.float32)[:, None]
    means = own.mean(axis=0, dtype=np.float64) / shares
    tau = _tau(x)
    sigma = _sigma(own)
    independent = n / tau
    if independent < FEWEST_INDEPENDENT:
        glaring = _glaring(laps, means)
        return SlowOnes(glaring, tau, too_few_steps=not glaring)
    excess = means - _median_of_others(means)
    scatter = sigma * np.sqrt(tau / (n * shares)) * np.sqrt(1 + _median_loss(ranks) / (ranks - 1))
    freedom = 0.6 * (ranks - 1) * (independent - 1)
    limit = scipy_stats.t.ppf(1 - ALPHA / ranks, freedom)
    indifferent = np.log1p(max(indifference(ranks), blind_ns / float(np.exp(step_mean.mean()))))
    slow = (excess - indifferent) > limit * np.maximum(scatter, 1e-12)
    slow &= _stand_out(means)
    named = tuple(np.flatnonzero(slow).tolist())
    return SlowOnes(named, tau, too_few_steps=False)


def _glaring(laps: Ints, means: Floats) -> tuple[int, ...]:
    """Ranks whose fast laps are far slower than the others' slow ones: no test is needed for that."""
    named = []
    for rank in np.flatnonzero(means - np.median(means) > np.log(_GLARING) / 2).tolist():
        others = np.median(np.delete(laps, rank, axis=1), axis=1)
        if np.quantile(laps[:, rank], 0.05) > _GLARING * np.quantile(others, 0.95):
            named.append(rank)
    return tuple(named)


def _tau(x: npt.NDArray[np.float32]) -> float:
    """Steps after which a median rank's laps, less what all ranks share, forget themselves."""
    n, ranks = x.shape
    chosen = np.unique(np.linspace(0, ranks - 1, min(ranks, _RANKS_FOR_TAU)).astype(int))
    some = x[:, chosen].astype(np.float64)
    # A rank that becomes ever slower moves the mean of a few ranks, and would pass for everybody's
    # long memory; their median it does not move.
    shared = np.median(some, axis=1) if ranks > 2 else some.mean(axis=1)
    own = some - shared[:, None]
    own -= own.mean(axis=0)
    if ranks == 2:
        # With two ranks the difference of the pair is all there is; a drift would inflate τ.
        trend = np.arange(n) - (n - 1) / 2
        own -= np.outer(trend, trend @ own / (trend @ trend))
    return float(np.median([autocorrelation_time(series) for series in own.T]))


def _sigma(own: npt.NDArray[np.float32]) -> float:
    """The standard deviation of the median rank's laps, without what all ranks share."""
    n, ranks = own.shape
    if ranks == 2:
        trend = (np.arange(n) - (n - 1) / 2).astype(np.float64)
        some = own.astype(np.float64)
        own = (some - np.outer(trend, trend @ some / (trend @ trend))).astype(np.float32)
    sigmas = own.std(axis=0, ddof=1, dtype=np.float64)
    return float(np.median(sigmas)) * float(np.sqrt(ranks / (ranks - 1)))


def _median_of_others(means: Floats) -> Floats:
    """Per rank the median of all other ranks' means."""
    order = np.argsort(means)
    ordered = means[order]
    others = len(means) - 1

    def at(k: int) -> Floats:
        # The k-th of the others: one further on from the rank's own place.
        after = ordered[min(k + 1, others)]
        return np.asarray(np.where(np.arange(len(means)) <= k, after, ordered[k]))

    result = np.empty_like(means)
    result[order] = (at((others - 1) // 2) + at(others // 2)) / 2
    return result


def _median_loss(ranks: int) -> float:
    """How much more the median of the other ranks' means scatters than their mean would."""
    return {2: 1.0, 3: 1.0, 4: 1.35}.get(ranks, float(np.pi / 2))


def _stand_out(means: Floats) -> Bools:
    """Whether each rank lies outside its peers' own spread; with few ranks there is none to see."""
    ranks = len(means)
    if ranks < _SPREAD_RANKS:
        return np.ones(ranks, bool)
    if ranks >= _ROBUST_RANKS:
        # A median deviation knows the spread as well as a standard deviation of 0.37 times as many.
        limit = scipy_stats.t.ppf(1 - ALPHA / ranks, 0.37 * (ranks - 1))
        return np.asarray(means - np.median(means) > limit * robust_sd(means))
    return _outliers(means)


def _outliers(means: Floats) -> Bools:
    """Values above the rest of a small sample (generalised extreme Studentised deviate, one-sided).

    The largest is taken out again and again, and the last one that still stands out decides: two slow
    ranks that widen each other's spread are found together (Rosner 1983).
    """
    order = np.argsort(means)[::-1]
    result = np.zeros(len(means), bool)
    for taken in range(len(means) // 3):
        rest = means[order[taken:]]
        n = len(rest)
        deviation = (rest[0] - rest.mean()) / max(rest.std(ddof=1), 1e-12)
        t = scipy_stats.t.ppf(1 - ALPHA / n, n - 2)
        if deviation > (n - 1) * t / np.sqrt(n * (n - 2 + t * t)):
            result[order[: taken + 1]] = True
    return result

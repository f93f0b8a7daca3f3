"""Test whether a rank or host is slow, or only the slowest of many by chance.

Tests on the share of steps in which a rank is critical raise false alarms in up to half of all clean
runs. So the test compares laps: a lap is the time from the previous reduction until a rank's gradients
are ready. A rank is named if its laps exceed its peers' by more than their noise (autocorrelated over
steps) and the spread among ranks explain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from stallscope.arrays.blocks import Block, Matrix, added
from stallscope.arrays.distributions import student_quantile
from stallscope.arrays.local_matrix import LocalMatrix
from stallscope.arrays.stats import Mean, autocorrelation_time, evenly, median, robust_sd
from stallscope.arrays.types import Bools, Floats, Ints

from ..ledger.ledger import Ledger, measured_steps

#: Rank, host and burst tests share a false-alarm rate of 2 %.
ALPHA = 0.02 / 3
# Healthy ranks differ in speed by up to 2 %, and by up to 4 % if they are too few to show their spread.
_INDIFFERENCE = 0.02
_INDIFFERENCE_OF_FEW = 0.04
# With fewer independent steps τ itself is uncertain. Then a rank is named only if its fast laps are this
# many times the others' slow ones.
_FEWEST_INDEPENDENT = 20
_GLARING = 1.5
# This many ranks show their spread; from the second number on, robust estimates work.
_SPREAD_RANKS = 8
_ROBUST_RANKS = 32
# A host is slow if this share of its ranks is.
_MOST_OF_A_HOST = 0.75
# τ is the median over at most this many ranks: more do not change it.
_RANKS_FOR_TAU = 64
_MS_PER_HOUR = 3_600_000.0


@dataclass(frozen=True)
class LapTestResult:
    """The positions of slow ranks or hosts; ``too_few_steps`` if there are too few to name any."""

    named: tuple[int, ...]
    #: The autocorrelation time of laps, in steps.
    tau: float
    too_few_steps: bool


def indifference(ranks: int) -> float:
    """Return the fraction by which this many healthy ranks differ in speed."""
    return _INDIFFERENCE if ranks >= _SPREAD_RANKS else _INDIFFERENCE_OF_FEW


def slow_ranks(ledger: Ledger, tested: Sequence[int], blind_ns: float = 0.0) -> LapTestResult:
    """Find persistently slow ranks among those at the positions ``tested``.

    Args:
        ledger: steady steps.
        blind_ns: the smallest excess that names a rank; the completion skew where it aligned clocks.
    """
    ranks = np.array(tested, np.int64)
    return _slow(ledger.cells, ranks, ledger.cells.summed(measured_steps, ranks), blind_ns)


def rank_hours(cost_ms: Mean, steps: int, ranks: int) -> Mean:
    """Return the hours of all ranks together that a cost per step adds up to."""
    return cost_ms.scaled(steps * ranks / _MS_PER_HOUR)


def enough_to_name(ledger: Ledger) -> bool:
    """Whether there are enough steps to distinguish a slow rank from chance."""
    some = evenly(len(ledger.ranks), _RANKS_FOR_TAU)
    return not slow_ranks(ledger, some.tolist()).too_few_steps


def too_few(ledger: Ledger) -> str:
    """Say that the steps are not enough: 12 steady steps, each much like the one before, are too few."""
    if len(ledger) == 1:
        return "one steady step is too few"
    return f"{len(ledger):,} steady steps, each much like the one before, are too few"


def slow_hosts(
    ledger: Ledger, hosts: Sequence[str], blind_ns: float = 0.0, tests: int = 1
) -> tuple[tuple[str, ...], LapTestResult | None]:
    """Find persistently slow hosts, by the same test on the medians over each host's ranks.

    Args:
        ledger: steady steps.
        hosts: per rank, its host, or its place in a dimension of the mesh.
        blind_ns: the smallest excess that names a host.
        tests: the number of such tests in a run, which share the rate of false alarms.
    """
    names = list(dict.fromkeys(hosts))
    # A host with one rank is that rank: do not name it twice.
    if len(names) < 2 or len(names) == len(hosts) or not len(ledger):
        return (), None
    host_of_rank = np.array(hosts)
    columns = [np.flatnonzero(host_of_rank == name) for name in names]
    test = _slow_medians(ledger.cells, columns, blind_ns, tests)
    if not test.named:
        return (), test
    # One very slow rank raises its host's median a little: also test each host without its slowest rank.
    means = ledger.cells.summed(_logarithms) / len(ledger)
    fewer = [_without_slowest(ranks, means) for ranks in columns]
    again = _slow_medians(ledger.cells, fewer, blind_ns, tests)
    slow = tuple(
        names[index]
        for index in test.named
        if index in again.named and _most_are_slow(means, host_of_rank == names[index])
    )
    return slow, test


def _slow_medians(
    cells: Matrix, columns: Sequence[Ints], blind_ns: float, tests: int
) -> LapTestResult:
    """Run the test on the medians over each host's ranks."""
    medians = np.concatenate(cells.by_steps(_medians, columns), axis=1)
    of_hosts = LocalMatrix.of({"arrival": medians.T})
    counts = np.full(len(columns), len(medians.T))
    return _slow(of_hosts, np.arange(len(columns)), counts, blind_ns, tests)


def _medians(block: Block, columns: Sequence[Ints]) -> Ints:
    """Kernel: compute the lower median over each host's ranks, hosts × steps."""
    arrival = block["arrival"].T
    medians = np.empty((len(columns), arrival.shape[1]), np.int64)
    sizes = np.array([len(ranks) for ranks in columns])
    for size in np.unique(sizes).tolist():
        # Hosts with the same number of ranks are computed together.
        same_size = np.flatnonzero(sizes == size).tolist()
        laps = arrival[np.concatenate([columns[host] for host in same_size])]
        laps = laps.reshape(len(same_size), size, arrival.shape[1])
        # The lower median: with two ranks on a host, one slow rank is not yet a slow host.
        middle = (size - 1) // 2
        medians[same_size] = np.sort(laps, axis=1)[:, middle]
    return medians


def _logarithms(block: Block) -> Floats:
    """Kernel: add up the logarithms of each rank's laps."""
    return np.asarray(_log(block["arrival"]).sum(axis=0, dtype=np.float64))


def _log(laps: Ints) -> npt.NDArray[np.float32]:
    # Single precision loses a millionth of a lap.
    return np.log(np.maximum(laps, 1), dtype=np.float32)


def _without_slowest(ranks: Ints, means: Floats) -> Ints:
    return ranks if len(ranks) < 2 else np.delete(ranks, means[ranks].argmax())


def _most_are_slow(means: Floats, in_host: Bools) -> bool:
    """Whether most of a host's ranks are slow: two slow ranks of eight also raise its median."""
    over = means[in_host] - np.median(means[~in_host])
    return bool((over > np.log1p(_INDIFFERENCE)).mean() >= _MOST_OF_A_HOST)


def _slow(
    cells: Matrix, tested: Ints, counts: Ints, blind_ns: float, tests: int = 1
) -> LapTestResult:
    """Run the test.

    Args:
        cells: ``arrival`` are the laps, nanoseconds.
        tested: positions of the ranks to test.
        counts: per rank, how many steps it measured; the others have a peer's figures.
        blind_ns: the smallest excess that names a rank.
        tests: the number of tests that share the rate of false alarms.
    """
    n, ranks = cells.shape[0], len(tested)
    if ranks < 2 or n < _FEWEST_INDEPENDENT:
        return LapTestResult((), 1.0, too_few_steps=True)
    of_steps, of_ranks = zip(
        *cells.by_steps(_moments, tested, bool((counts < n).any())), strict=True
    )
    step_mean, (sums, squares) = np.concatenate(of_steps), added(of_ranks)
    counts = np.maximum(counts, 2)
    means = sums / counts
    some = _log(cells.columns("arrival", tested[evenly(ranks, _RANKS_FOR_TAU)].tolist()))
    tau = _tau(some)
    sigma = _sigma(np.sqrt((squares - sums**2 / counts) / (counts - 1)))
    if ranks == 2:
        sigma = _sigma(_detrended(some - step_mean.astype(np.float32)[:, None]).std(axis=0, ddof=1))
    independent = n / tau
    if independent < _FEWEST_INDEPENDENT:
        glaring = _glaring(cells, tested, means)
        return LapTestResult(glaring, tau, too_few_steps=not glaring)
    excess = means - _median_of_others(means)
    scatter = sigma * np.sqrt(tau / counts) * np.sqrt(1 + _median_loss(ranks) / (ranks - 1))
    freedom = 0.6 * (ranks - 1) * (independent - 1)
    limit = student_quantile(1 - ALPHA / tests / ranks, freedom)
    indifferent = np.log1p(max(indifference(ranks), blind_ns / float(np.exp(step_mean.mean()))))
    slow = (excess - indifferent) > limit * np.maximum(scatter, 1e-12)
    slow &= _stand_out(means)
    named = tuple(np.flatnonzero(slow).tolist())
    return LapTestResult(named, tau, too_few_steps=False)


def _moments(block: Block, tested: Ints, partly: bool) -> tuple[Floats, Floats]:
    """Kernel: the mean logarithm per step, and each rank's sums of deviations and their squares.

    Args:
        block: the steps.
        tested: positions of the ranks.
        partly: whether some did not measure every step. A peer's figures keep the step's mean where it
            would be with them; deviations are only their own.
    """
    x = _log(block.of("arrival", tested))
    step_mean = x.mean(axis=1, dtype=np.float64)
    x -= step_mean.astype(np.float32)[:, None]
    if partly:
        x *= block.of("measured", tested)
    squares = np.square(x, dtype=np.float64).sum(axis=0)
    return step_mean, np.array([x.sum(axis=0, dtype=np.float64), squares])


def _glaring(cells: Matrix, tested: Ints, means: Floats) -> tuple[int, ...]:
    """Find ranks with fast laps far slower than the others' slow ones: they need no test."""
    candidates = np.flatnonzero(means - np.median(means) > np.log(_GLARING) / 2)
    if not len(candidates):
        return ()
    laps, others = cells.gathered(_own_and_others, tested, candidates)
    fast, slow = np.quantile(laps, 0.05, axis=1), np.quantile(others, 0.95, axis=1)
    return tuple(candidates[fast > _GLARING * slow].tolist())


def _own_and_others(block: Block, tested: Ints, candidates: Ints) -> tuple[Ints, Floats]:
    """Kernel: return the candidates' laps and the median of all others': candidates × steps."""
    laps = block.of("arrival", tested)
    others = [np.median(np.delete(laps, rank, axis=1), axis=1) for rank in candidates]
    return laps[:, candidates].T, np.array(others)


def _tau(some: npt.NDArray[np.float32]) -> float:
    """Estimate the autocorrelation time of a median rank's laps, without delays that all ranks share.

    Args:
        some: logarithms of the laps of some ranks, n × ranks.
    """
    x = some.astype(np.float64)
    ranks = x.shape[1]
    # A rank that becomes ever slower moves the mean of a few ranks, which would look like a long
    # autocorrelation of all of them. It does not move their median.
    shared = median(x) if ranks > 2 else x.mean(axis=1)
    residuals = x - shared[:, None]
    residuals -= residuals.mean(axis=0)
    if ranks == 2:
        # Two ranks have only their difference; a drift would inflate τ.
        residuals = _detrended(residuals)
    return float(np.median([autocorrelation_time(series) for series in residuals.T]))


def _detrended(series: npt.NDArray[Any]) -> Floats:
    n = len(series)
    trend = np.arange(n) - (n - 1) / 2
    return np.asarray(series - np.outer(trend, trend @ series / (trend @ trend)), np.float64)


def _sigma(sigmas: Floats) -> float:
    """Return the standard deviation of the median rank's laps, without delays that all ranks share."""
    ranks = len(sigmas)
    return float(np.median(sigmas)) * float(np.sqrt(ranks / (ranks - 1)))


def _median_of_others(means: Floats) -> Floats:
    """Return per rank the median of all other ranks' means."""
    order = np.argsort(means)
    ordered = means[order]
    others = len(means) - 1

    def at(k: int) -> Floats:
        # The k-th of the others is one further after the rank's own place.
        after = ordered[min(k + 1, others)]
        return np.asarray(np.where(np.arange(len(means)) <= k, after, ordered[k]))

    result = np.empty_like(means)
    result[order] = (at((others - 1) // 2) + at(others // 2)) / 2
    return result


def _median_loss(ranks: int) -> float:
    """Return how much more the median of the other ranks' means scatters than their mean."""
    return {2: 1.0, 3: 1.0, 4: 1.35}.get(ranks, float(np.pi / 2))


def _stand_out(means: Floats) -> Bools:
    """Whether each rank lies outside the spread of its peers; few ranks show no spread."""
    ranks = len(means)
    if ranks < _SPREAD_RANKS:
        return np.ones(ranks, bool)
    if ranks >= _ROBUST_RANKS:
        # A median deviation is as precise as a standard deviation of 0.37 times as many ranks.
        limit = student_quantile(1 - ALPHA / ranks, 0.37 * (ranks - 1))
        return np.asarray(means - np.median(means) > limit * robust_sd(means))
    return _outliers(means)


def _outliers(means: Floats) -> Bools:
    """Find outliers of a small sample (generalised extreme Studentised deviate, one-sided).

    Remove the largest value repeatedly; the last one that is still significant decides. So two slow
    ranks that widen each other's spread are found together (Rosner 1983).
    """
    order = np.argsort(means)[::-1]
    result = np.zeros(len(means), bool)
    for taken in range(len(means) // 3):
        rest = means[order[taken:]]
        n = len(rest)
        deviation = (rest[0] - rest.mean()) / max(rest.std(ddof=1), 1e-12)
        t = student_quantile(1 - ALPHA / n, n - 2)
        if deviation > (n - 1) * t / np.sqrt(n * (n - 2 + t * t)):
            result[order[: taken + 1]] = True
    return result

"""Compute differences between arms that alternate, with intervals."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import stats

_RESAMPLES = 10_000


@dataclass(frozen=True)
class Difference:
    """How much one arm exceeds the other, with its 95 % interval, in the unit of both."""

    value: float
    low: float
    high: float

    @property
    def interval(self) -> tuple[float, float]:
        return self.low, self.high


def difference(arm: list[float], none: list[float]) -> Difference:
    """Return what an arm adds, round by round.

    Both have one figure per round, the median of a block of steps. The blocks of a round follow each
    other within seconds, so that disturbances affect both alike. The interval is a bootstrap over
    rounds with a fixed seed.

    Raises:
        ValueError: if the arms have different numbers of rounds.
    """
    if len(arm) != len(none) or not arm:
        raise ValueError(f"{len(arm)} rounds of one arm and {len(none)} of the other make no pairs")
    return over_rounds(list(np.array(arm) - np.array(none)))


def over_rounds(added: list[float]) -> Difference:
    """Return what an arm adds, from the differences of the rounds."""
    rounds = np.array(added)
    random = np.random.default_rng(1)
    drawn = random.integers(0, len(rounds), (_RESAMPLES, len(rounds)))
    low, high = np.quantile(np.median(rounds[drawn], axis=1), (0.025, 0.975))
    return Difference(float(np.median(rounds)), float(low), float(high))


def over_processes(added: list[list[float]], together: int = 1) -> Difference:
    """Return what an arm adds, from the differences of the rounds of several processes.

    Effects of a process affect all its rounds. So the interval is Student's over the medians of the
    processes, which are too few to bootstrap; for a single process it is over its rounds.
    ``together`` so many intervals hold with 95 % (Bonferroni).
    """
    if len(added) == 1:
        return over_rounds(added[0])
    processes = np.median(np.array(added), axis=1)
    mean, error = processes.mean(), stats.sem(processes)
    reach = stats.t.ppf(1 - 0.025 / together, len(processes) - 1) * error
    return Difference(float(mean), float(mean - reach), float(mean + reach))

"""Differences between arms that take turns in one process, each with its interval."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import stats

_RESAMPLES = 10_000


@dataclass(frozen=True)
class Difference:
    """What one arm is above the other, with its 95 % interval; in the unit of what was paired."""

    value: float
    low: float
    high: float

    @property
    def interval(self) -> tuple[float, float]:
        return self.low, self.high


def difference(arm: list[float], none: list[float]) -> Difference:
    """What an arm adds, round by round.

    Both hold one figure per round, the median of a block of steps. Rounds follow each other within
    seconds, so that what the machine does besides hits both blocks of a round alike. The interval is
    the bootstrap's, over rounds; the seed is fixed, so that the same measurements say the same.

    Raises:
        ValueError: if the arms have not had as many rounds.
    """
    if len(arm) != len(none) or not arm:
        raise ValueError(f"{len(arm)} rounds of one arm and {len(none)} of the other make no pairs")
    return over_rounds(list(np.array(arm) - np.array(none)))


def over_rounds(added: list[float]) -> Difference:
    """What an arm adds, of the differences that the rounds have found."""
    rounds = np.array(added)
    random = np.random.default_rng(1)
    drawn = random.integers(0, len(rounds), (_RESAMPLES, len(rounds)))
    low, high = np.quantile(np.median(rounds[drawn], axis=1), (0.025, 0.975))
    return Difference(float(np.median(rounds)), float(low), float(high))


def over_processes(added: list[list[float]], together: int = 1) -> Difference:
    """The same of rounds of several processes: what a process has by chance, all of its rounds have.

    The interval is Student's, over the medians of the processes: they are too few to draw from. So many
    intervals ``together`` hold with 95 %, each of them with more (Bonferroni). A single process is told
    by its rounds.
    """
    if len(added) == 1:
        return over_rounds(added[0])
    processes = np.median(np.array(added), axis=1)
    mean, error = processes.mean(), stats.sem(processes)
    reach = stats.t.ppf(1 - 0.025 / together, len(processes) - 1) * error
    return Difference(float(mean), float(mean - reach), float(mean + reach))

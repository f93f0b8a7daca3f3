"""Differences between arms that take turns in one process, each with its interval."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

_RESAMPLES = 10_000


@dataclass(frozen=True)
class Difference:
    """The median of paired differences, with its 95 % interval; in the unit of what was paired."""

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
    return _difference(rounds, np.median(rounds[drawn], axis=1))


def over_processes(added: list[list[float]], together: int = 1) -> Difference:
    """The same of rounds of several processes: what a process has by chance, all of its rounds have.

    The bootstrap draws processes, and of each its rounds. All processes must have as many. So many
    intervals ``together`` hold with 95 %, each of them with more (Bonferroni).
    """
    rounds = np.array(added)
    count, length = rounds.shape
    random = np.random.default_rng(1)
    processes = random.integers(0, count, (_RESAMPLES, count, 1))
    drawn = rounds[processes, random.integers(0, length, (_RESAMPLES, count, length))]
    return _difference(rounds, np.median(drawn, axis=(1, 2)), together)


def _difference(rounds: np.ndarray, medians: np.ndarray, together: int = 1) -> Difference:
    outside = 0.05 / together
    low, high = np.quantile(medians, (outside / 2, 1 - outside / 2))
    return Difference(float(np.median(rounds)), float(low), float(high))

"""Random numbers by purpose, so that what one part of a job draws never moves another part's draws."""

from __future__ import annotations

from enum import IntEnum

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]

#: Nanoseconds; every time of a simulated job is whole microseconds, as in the logs.
US = 1_000
MS = 1_000_000

# Ranks are drawn in blocks of about this many cells: more would only cost memory.
_BLOCK = 1 << 20


class Purpose(IntEnum):
    """What random numbers are for. The numbers are part of every seed: never change one."""

    INPUT = 1
    COMPUTE = 2
    OTHER = 3
    TRANSFER = 4
    COMMON = 5
    TAIL = 6
    JITTER = 7
    SPREAD = 8
    CLOCKS = 9
    LOST = 10
    FAULT = 11
    LOADER = 12


def generator(seed: int, purpose: Purpose, index: int = 0) -> np.random.Generator:
    """The generator of one purpose of a job."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(int(purpose), index)))


def blocks(ranks: int, steps: int) -> list[slice]:
    """The ranks in blocks that fit a cache rather than the memory."""
    size = max(1, _BLOCK // max(1, steps))
    return [slice(first, min(first + size, ranks)) for first in range(0, ranks, size)]


def lognormal(normal: Floats, cv: float) -> Floats:
    """Standard normal values as factors with mean 1 and the coefficient of variation, in place."""
    sigma = float(np.sqrt(np.log1p(cv**2)))
    normal *= np.float32(sigma)
    normal -= np.float32(sigma**2 / 2)
    return np.exp(normal, out=normal)


def nanoseconds(ms: float) -> int:
    """A time in nanoseconds, rounded to whole microseconds."""
    return round(ms * 1e3) * US


def whole_microseconds(microseconds: npt.NDArray[np.floating]) -> Ints:
    """The same of many times, given in microseconds."""
    return np.asarray(np.rint(microseconds).astype(np.int64) * US)

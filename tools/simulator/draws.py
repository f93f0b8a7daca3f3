"""Draw random numbers by purpose, so that one part of a job never changes the draws of another."""

from __future__ import annotations

from enum import IntEnum

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]

#: Nanoseconds. All times of a simulated job are whole microseconds, as in the logs.
US = 1_000
MS = 1_000_000

# Cells of a block of ranks that are drawn together, to limit memory.
_BLOCK = 1 << 20


class Purpose(IntEnum):
    """Purposes of random numbers. The values are part of every seed: never change one."""

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
    LOOKS = 13


def generator(seed: int, purpose: Purpose, index: int = 0) -> np.random.Generator:
    """Return the random generator of one purpose of a job."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(int(purpose), index)))


def blocks(ranks: int, steps: int) -> list[slice]:
    """Split the ranks into blocks that fit the CPU cache."""
    size = max(1, _BLOCK // max(1, steps))
    return [slice(first, min(first + size, ranks)) for first in range(0, ranks, size)]


def lognormal(normal: Floats, cv: float) -> Floats:
    """Turn standard normal values into factors with mean 1 and a coefficient of variation, in place."""
    sigma = float(np.sqrt(np.log1p(cv**2)))
    normal *= np.float32(sigma)
    normal -= np.float32(sigma**2 / 2)
    return np.exp(normal, out=normal)


def nanoseconds(ms: float) -> int:
    """Convert milliseconds to nanoseconds, rounded to whole microseconds."""
    return round(ms * 1e3) * US


def whole_microseconds(microseconds: npt.NDArray[np.floating]) -> Ints:
    """Convert microseconds to nanoseconds, rounded to whole microseconds."""
    return np.asarray(np.rint(microseconds).astype(np.int64) * US)

"""Order the ranks of each step by arrival."""

from __future__ import annotations

import numpy as np

from stallscope.arrays.blocks import LATEST
from stallscope.arrays.types import Bools, Ints

# Bits of an arrival and a rank's number together, which must not overflow.
_BITS = 62
# Knuth's multiplier: neighbouring steps get numbers that have little in common.
_MIXING = 2654435761


def ranks_by_arrival(arrival: Ints, measured: Bools, first: int = 0) -> tuple[Ints, Ints, Ints]:
    """Return per step the positions of the reference rank (lower median), second last and last.

    An arrival and its rank are sorted as one integer, so that the sorted row contains the ranks. Below
    the arrival's bits stands a number of the rank that differs from step to step: among ranks with the
    same arrival, the lowest must not always come first.

    Args:
        arrival: nanoseconds, steps × ranks.
        measured: whether a rank measured the step; at least one did.
        first: the position of the first step, so that the order does not depend on a block's size.
    """
    steps, ranks = arrival.shape
    if not ranks:
        return (np.zeros(0, np.int64),) * 3
    bits = (ranks - 1).bit_length()
    numbers = (1 << bits) - 1
    mixed = np.arange(first, first + steps) * _MIXING
    factor, mask = mixed & numbers | 1, mixed >> 32 & numbers
    keys, there = _since_first(arrival, measured)
    np.minimum(keys, 1 << (_BITS - bits), out=keys)
    keys <<= bits
    keys |= np.arange(ranks) * factor[:, None] & numbers ^ mask[:, None]
    keys.sort(axis=1)
    absent, at = ranks - there, np.arange(steps)
    places = (absent + (there - 1) // 2, ranks - np.minimum(there, 2), ranks - 1)
    inverse = _inverse(factor, bits)
    reference, second, critical = (
        (keys[at, place] & numbers ^ mask) * inverse & numbers for place in places
    )
    return reference, second, critical


def _since_first(arrival: Ints, measured: Bools) -> tuple[Ints, Ints]:
    """Return arrivals since the step's first one, row by row in memory, and how many ranks measured it.

    Missing ranks have -1: they sort first, so that the last ones are measured.
    """
    steps, ranks = arrival.shape
    if measured.all():
        return np.subtract(arrival, arrival.min(axis=1)[:, None], order="C"), np.full(steps, ranks)
    first = np.where(measured, arrival, LATEST).min(axis=1)
    since = np.subtract(arrival, first[:, None], order="C")
    since[~measured] = -1
    return since, measured.sum(axis=1)


def _inverse(odd: Ints, bits: int) -> Ints:
    """Invert odd numbers modulo 2^bits by Newton's iteration, which doubles the right bits."""
    inverse, right = odd, 3
    while right < bits:
        inverse, right = inverse * (2 - odd * inverse), 2 * right
    return inverse

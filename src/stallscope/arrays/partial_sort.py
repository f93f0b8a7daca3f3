"""Find the k-th smallest of a few values in many places at once: over a host's ranks, per step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache

import numpy as np

from .types import Ints

# With more values numpy's partition is faster, although it works place by place.
_FEW = 16


def smallest_of_few(values: Ints, kth: Sequence[int]) -> list[Ints]:
    """Return the k-th smallest value of each group, counted from 0, for several k.

    Args:
        values: groups × values × places.
        kth: each below the number of values.

    Returns:
        Per k an array of groups × places.
    """
    count = values.shape[1]
    if count > _FEW:
        part = np.partition(values, sorted(set(kth)), axis=1)
        return [part[:, k] for k in kth]
    # Compare and exchange whole arrays: the CPU does many places in one instruction.
    ordered = [values[:, index].copy() for index in range(count)]
    spare = np.empty_like(ordered[0])
    for low, high in _exchanges(count):
        first, second = ordered[low], ordered[high]
        ordered[low], spare = np.minimum(first, second, out=spare), first
        np.maximum(first, second, out=second)
    return [ordered[k] for k in kth]


@cache
def _exchanges(count: int) -> tuple[tuple[int, int], ...]:
    """Return the pairs of values to compare and exchange to sort this many (Batcher 1968)."""
    return tuple(_merge_exchange(count))


def _merge_exchange(count: int) -> Iterator[tuple[int, int]]:
    """Yield the exchanges of Knuth, The Art of Computer Programming, volume 3, algorithm 5.2.2 M."""
    top = 1 << max(0, (count - 1).bit_length() - 1)
    p = top if count > 1 else 0
    while p:
        q, r, d = top, 0, p
        while True:
            yield from ((i, i + d) for i in range(count - d) if i & p == r)
            if q == p:
                break
            d, q, r = q - p, q >> 1, p
        p >>= 1

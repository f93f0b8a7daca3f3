"""Compute quantiles and running medians of many values, equal to numpy's to the last digit.

numpy selects four values for each quantile, and each costs as much as the first. One selection is
enough: the next larger value is the minimum of those above.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from .distributions import ndimage
from .types import Floats, Ints

Array = npt.NDArray[Any]
# Up to this many values in all windows, numpy is faster than importing scipy.
_FEW = 1 << 16
# With more values numpy's partition is faster, although it works place by place.
_FEW_VALUES = 16


def median(values: npt.ArrayLike) -> Floats:
    """Return the median over the last axis, of at least one value, as ``np.median`` does.

    It is NaN if one of the values is.
    """
    array = np.asarray(values)
    count = array.shape[-1]
    low, high, _ = _neighbours(array, (count - 1) // 2)
    if count % 2:
        # NaN sorts last.
        return np.asarray(np.where(np.isnan(high), high, low), np.float64)
    return np.asarray((low.astype(np.float64) + high) / 2)


def quantile(values: npt.ArrayLike, q: float) -> Floats:
    """Return a quantile over the last axis, of at least one value, as ``np.quantile`` does.

    Args:
        values: numbers, none of them NaN.
        q: from 0 to 1.
    """
    (value,) = quantiles(values, (q,))
    return value


def quantiles(values: npt.ArrayLike, descending: Sequence[float]) -> list[Floats]:
    """Return several quantiles as ``quantile`` does; each is sought among the values below the last."""
    left, interpolated = np.asarray(values), []
    last = before = left.shape[-1] - 1
    for q in descending:
        below = int(last * q)
        if below < before:
            left = left[..., : before + 1]
        low, high, left = _neighbours(left, below)
        share, difference, before = last * q - below, high - low, below
        # In numpy's order of operations.
        between = low + difference * share if share < 0.5 else high - difference * (1 - share)
        interpolated.append(np.asarray(between, np.float64))
    return interpolated


def _neighbours(array: Array, at: int) -> tuple[Array, Array, Array]:
    """Return the value at this place in order, the next one (itself if it is the last), and the array
    with no larger value before that place.
    """
    part = np.partition(array, at, axis=-1)
    low, rest = part[..., at], part[..., at + 1 :]
    return low, rest.min(axis=-1) if rest.shape[-1] else low, part


# -- running medians -------------------------------------------------------------------------------
#
# Compute running medians.


def running_median(values: npt.NDArray[Any], window: int) -> npt.NDArray[Any]:
    """Return the median of the values around each one; the first and the last repeat beyond the ends.

    With an even number of values, it is the larger of the two in the middle.
    """
    if not len(values):
        return values
    if len(values) * window > _FEW:
        return np.asarray(ndimage.median_filter(values, size=window, mode="nearest"))
    middle = window // 2
    padded = np.pad(values, (middle, window - 1 - middle), mode="edge")
    around = np.lib.stride_tricks.sliding_window_view(padded, window)
    return np.asarray(np.partition(around, middle, axis=1)[:, middle])


# -- partial sort ----------------------------------------------------------------------------------
#
# Find the k-th smallest of a few values in many places at once: over a host's ranks, per step.


def smallest_of_few(values: Ints, kth: Sequence[int]) -> list[Ints]:
    """Return the k-th smallest value of each group, counted from 0, for several k.

    Args:
        values: groups × values × places.
        kth: each below the number of values.

    Returns:
        Per k an array of groups × places.
    """
    count = values.shape[1]
    if count > _FEW_VALUES:
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


# -- groups ----------------------------------------------------------------------------------------
#
# Reduce groups of rows to one row each: the ranks of each clock.


def of_each(join: np.ufunc, values: Ints, starts: Ints) -> Ints:
    """Reduce each group of consecutive rows to one row: groups × columns.

    Args:
        join: ``np.minimum`` or ``np.maximum``.
        values: rows × columns.
        starts: the first row of each group, ascending from 0; no group is empty.
    """
    sizes = np.diff(starts, append=len(values))
    if len(sizes) and (sizes == sizes[0]).all():
        # Three times as fast as the general case.
        groups = values.reshape(len(sizes), int(sizes[0]), values.shape[1])
        return np.asarray(join.reduce(groups, axis=1))
    return np.asarray(join.reduceat(values, starts, axis=0))

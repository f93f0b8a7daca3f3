"""Compute quantiles of many values, equal to numpy's to the last digit.

numpy selects four values for each quantile, and each costs as much as the first. One selection is
enough: the next larger value is the minimum of those above.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from .types import Floats

Array = npt.NDArray[Any]


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

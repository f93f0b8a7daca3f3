"""Reduce groups of rows to one row each: the ranks of each clock."""

from __future__ import annotations

import numpy as np

from .types import Ints


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

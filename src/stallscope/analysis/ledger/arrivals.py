"""Order the ranks of each step by arrival."""

from __future__ import annotations

import numpy as np

from stallscope.arrays.blocks import NULL
from stallscope.arrays.types import Bools, Ints

# From this number of ranks, sorting takes less than half of the time of numpy's argpartition.
_SORTED = 8
# Where ranks arrive together in more than 6 of 16 steps, sorting gains nothing.
_MANY_TIES, _STEPS_FOR_TIES = 6, 16


def ranks_by_arrival(arrival: Ints, measured: Bools) -> tuple[Ints, Ints, Ints]:
    """Return per step the positions of the reference rank (lower median), second last and last."""
    ranks = arrival.shape[1]
    if not ranks:
        return (np.zeros(0, np.int64),) * 3
    # Row by row: the arrivals of a step should be contiguous.
    lanes = np.ascontiguousarray(arrival)
    reference, second, critical = _ranks_at(lanes, ((ranks - 1) // 2, max(ranks - 2, 0), ranks - 1))
    if not measured.all():
        partly = np.flatnonzero(~measured.all(axis=1))
        # Missing ranks sort first, so that the last ones are measured.
        own = np.where(measured[partly], arrival[partly], NULL)
        order = np.argsort(own, axis=1, kind="stable")
        there = measured[partly].sum(axis=1)
        at = np.arange(len(partly))
        reference[partly] = order[at, ranks - there + (there - 1) // 2]
        second[partly] = order[at, ranks - np.minimum(there, 2)]
        critical[partly] = order[:, ranks - 1]
    return reference, second, critical


def _ranks_at(arrival: Ints, kth: tuple[int, int, int]) -> Ints:
    """Return the ranks at these places of a step's order of arrivals: 3 × steps."""
    if arrival.shape[1] < _SORTED:
        return _ranks_partitioned(arrival, kth)
    if _tied(np.sort(arrival[:_STEPS_FOR_TIES], axis=1), kth).sum() > _MANY_TIES:
        return _ranks_partitioned(arrival, kth)
    ordered = np.sort(arrival, axis=1)
    ranks = np.array([(arrival == ordered[:, k, None]).argmax(axis=1) for k in kth])
    # Among ranks with the same arrival, the lowest must not always be chosen.
    tied = np.flatnonzero(_tied(ordered, kth))
    if len(tied):
        ranks[:, tied] = _ranks_partitioned(arrival[tied], kth)
    return ranks


def _tied(ordered: Ints, kth: tuple[int, int, int]) -> Bools:
    """Mark the steps in which several ranks have the arrival at one of these places."""
    at = np.array([kth[0], kth[0] + 1, *kth[1:]])
    return np.asarray((ordered[:, at] == ordered[:, at - 1]).any(axis=1))


def _ranks_partitioned(arrival: Ints, kth: tuple[int, int, int]) -> Ints:
    order = np.argpartition(arrival, sorted(set(kth)), axis=1)
    return np.array([order[:, k] for k in kth])

"""Split a timeline into bursts: negotiations that follow each other without an operation between them.

A step never starts within a burst: its gradients are negotiated after the operations of the step before.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stallscope.arrays.blocks import LATEST
from stallscope.arrays.types import Ints
from stallscope.parsers.horovod_timeline import Activities

from .segment import by_tensor, is_counted_negotiation, is_negotiated, is_operation


def burst_starts(rows: Activities, names: Sequence[str]) -> Ints:
    """Find the rows at which bursts start.

    Args:
        rows: activities, sorted by their start.
        names: the names of activities.
    """
    counted = np.array([is_counted_negotiation(name) for name in names], bool)[rows.name]
    operations = np.cumsum(np.array([is_operation(name) for name in names], bool)[rows.name])
    negotiations = np.flatnonzero(counted)
    done = operations[negotiations]
    starts: Ints = negotiations[np.append(True, done[1:] > done[:-1])[: len(done)]]
    return starts


def last_idle(rows: Activities, starts: Ints, names: Sequence[str]) -> int:
    """Find the last of these rows that starts when nothing is under way; 0 if there is none.

    A tensor is under way from the start of its negotiation to the end of its operation.

    Args:
        rows: activities, sorted by their start.
        starts: positions of rows, ascending.
        names: the names of activities.
    """
    is_negotiation = np.array([is_negotiated(name) for name in names], bool)[rows.name]
    is_own = is_negotiation | np.array([is_operation(name) for name in names], bool)[rows.name]
    own = np.flatnonzero(is_own)
    own = own[by_tensor(rows.tensor[own])]
    tensor, negotiation = rows.tensor[own], is_negotiation[own]
    until = rows.end.copy()
    # The latest row of a tensor is under way if it is a negotiation.
    last = np.append(tensor[1:] != tensor[:-1], True)[: len(own)]
    until[own[last & negotiation]] = LATEST
    operated = np.flatnonzero(negotiation[:-1] & ~negotiation[1:] & ~last[:-1])
    until[own[operated]] = np.maximum(until[own[operated]], rows.begin[own[operated + 1]])
    reached = np.maximum.accumulate(until)
    starts = starts[starts > 0]
    idle = starts[reached[starts - 1] <= rows.begin[starts]]
    return int(idle[-1]) if len(idle) else 0

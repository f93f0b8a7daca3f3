"""Split a timeline into segments: whole bursts of negotiations, with the activities that start in them.

In a burst, negotiations follow each other without an operation between them. A step never starts within
a burst: its gradients are negotiated after the operations of the step before.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from stallscope.arrays.blocks import LATEST
from stallscope.arrays.types import Bools, Ints
from stallscope.parsers.formats.horovod_timeline import Activities, Ticks

_ALLREDUCE = "ALLREDUCE"
# Operations that reduce gradients, all that a step may consist of, and all that there are.
_REDUCTIONS = (_ALLREDUCE, "ADASUM", "REDUCESCATTER")
_COUNTED = (*_REDUCTIONS, "ALLGATHER", "ALLTOALL")
_OPERATIONS = (*_COUNTED, "BROADCAST", "ERROR")
_NEGOTIATION = "NEGOTIATE_"
# Prefixes of the parts in which data is transferred, copied, or awaited.
_TRANSFERS = ("NCCL_", "MPI_", "GLOO_", "CCL_", "DDL_")
_COPIES = ("MEMCPY_", "COPY_")
_WAITS = ("WAIT_FOR_", "QUEUE")


@dataclass(frozen=True)
class ActivitySegment:
    """Activities sorted by their start, with the ticks that may lie within them."""

    rows: Activities
    ticks: Ticks
    names: Sequence[str]
    #: Microseconds at which the segment's bursts start.
    burst_starts: Ints
    #: Whether the segment is the first one of a job that was started again.
    restarted: bool

    @cached_property
    def negotiated(self) -> Activities:
        """Select negotiations."""
        return self.rows.only((self.rows.level == 0) & self._is_negotiation)

    @cached_property
    def operations(self) -> Activities:
        """Select operations."""
        return self.rows.only((self.rows.level == 0) & ~self._is_negotiation)

    @cached_property
    def parts(self) -> Activities:
        """Select the parts of operations."""
        return self.rows.only((self.rows.level == 1) & ~self._is_negotiation)

    @cached_property
    def negotiated_allreduces(self) -> Activities:
        """Select negotiations of allreduces."""
        return self.negotiated.only(self.of(self.negotiated, (_NEGOTIATION + _ALLREDUCE).__eq__))

    @cached_property
    def allreduces(self) -> Activities:
        """Select allreduces, sorted by their start and then by tensor."""
        allreduces = self.operations.only(self.of(self.operations, _ALLREDUCE.__eq__))
        return allreduces.take(np.lexsort((allreduces.tensor, allreduces.begin)))

    @cached_property
    def counted(self) -> tuple[Activities, Ints]:
        """Return negotiations that steps may consist of, and the bytes of each one's operation."""
        rows = self.rows.only(self.of(self.rows, _is_counted_negotiation))
        operations = self.operations.only(self.of(self.operations, _COUNTED.__contains__))
        size = _size_by_tensor(operations, rows.tensor)
        if size is None:
            size = np.full(len(rows), -1)
            latest = latest_before(rows, operations.tensor, operations.begin)
            size[latest[latest >= 0]] = operations.size[latest >= 0]
        return rows, size

    @cached_property
    def allreduce_parts(self) -> tuple[Activities, Ints]:
        """Return the parts of allreduces, and the index of the allreduce of each."""
        owner = within(self.allreduces, self.parts.tensor, self.parts.begin, self.parts.end)
        return self.parts.only(owner >= 0), owner[owner >= 0]

    @cached_property
    def reductions(self) -> Ints:
        """Return the number of each allreduce's reduction, counted from 0 by start."""
        operations = self.allreduces
        parts, owner = self.allreduce_parts
        # When the first part of each operation starts, or else when the operation ends. Parts are sorted
        # by their start: the first one of each operation is assigned last.
        active = operations.end.copy()
        active[owner[::-1]] = parts.begin[::-1]
        return np.cumsum(np.append(True, active[:-1] < operations.begin[1:])[: len(active)]) - 1

    def of(self, rows: Activities, chosen: Callable[[str], bool]) -> Bools:
        """Mark the rows with a chosen name."""
        return _named(rows, self.names, chosen)

    def kinds(self, rows: Activities) -> dict[str, Bools]:
        """Mark the parts that wait, copy and transfer."""
        forms = {"wait": _WAITS, "copy": _COPIES, "transfer": _TRANSFERS}
        return {
            kind: self.of(rows, lambda name, form=form: name.startswith(form))  # type: ignore[misc]
            for kind, form in forms.items()
        }

    @cached_property
    def _is_negotiation(self) -> Bools:
        return self.of(self.rows, lambda name: name.startswith(_NEGOTIATION))


# Tensors are numbered consecutively, unless the timeline is damaged.
_MOST_IN_A_TABLE = 1 << 16


def _is_counted_negotiation(name: str) -> bool:
    """Whether an activity negotiates an operation that steps may consist of."""
    return _negotiates(name, _COUNTED)


def is_reductions_negotiation(name: str) -> bool:
    """Whether an activity negotiates a reduction."""
    return _negotiates(name, _REDUCTIONS)


def _negotiates_an_operation(name: str) -> bool:
    """Whether an activity is a negotiation that an operation follows."""
    return _negotiates(name, _OPERATIONS)


def _negotiates(name: str, operations: Collection[str]) -> bool:
    return name.startswith(_NEGOTIATION) and name.removeprefix(_NEGOTIATION) in operations


def _named(rows: Activities, names: Sequence[str], chosen: Callable[[str], bool]) -> Bools:
    """Mark the rows with a chosen name."""
    return np.array([chosen(name) for name in names], bool)[rows.name]


def burst_starts(rows: Activities, names: Sequence[str]) -> Ints:
    """Find the rows at which bursts start.

    Args:
        rows: activities, sorted by their start.
        names: the names of activities.
    """
    counted = _named(rows, names, _is_counted_negotiation)
    operations = np.cumsum(_named(rows, names, _OPERATIONS.__contains__))
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
    is_negotiation = _named(rows, names, _negotiates_an_operation)
    is_own = is_negotiation | _named(rows, names, _OPERATIONS.__contains__)
    indices = np.flatnonzero(is_own)
    indices = indices[by_tensor(rows.tensor[indices])]
    tensor, negotiation = rows.tensor[indices], is_negotiation[indices]
    until = rows.end.copy()
    # The latest row of a tensor is under way if it is a negotiation.
    last = np.append(tensor[1:] != tensor[:-1], True)[: len(indices)]
    until[indices[last & negotiation]] = LATEST
    operated = np.flatnonzero(negotiation[:-1] & ~negotiation[1:] & ~last[:-1])
    until[indices[operated]] = np.maximum(
        until[indices[operated]], rows.begin[indices[operated + 1]]
    )
    reached = np.maximum.accumulate(until)
    starts = starts[starts > 0]
    idle = starts[reached[starts - 1] <= rows.begin[starts]]
    return int(idle[-1]) if len(idle) else 0


def _size_by_tensor(operations: Activities, tensor: Ints) -> Ints | None:
    """Return the size of each tensor's operations, -1 for none; None if a tensor has several sizes."""
    most = max(int(operations.tensor.max(initial=0)), int(tensor.max(initial=0)))
    if most > _MOST_IN_A_TABLE:
        return None
    table = np.full(most + 1, -1)
    table[operations.tensor] = operations.size
    if np.any(table[operations.tensor] != operations.size):
        return None
    return table[tensor]


def within(outer: Activities, tensor: Ints, begin: Ints, end: Ints) -> Ints:
    """Find the outer interval of the same tensor around each inner interval; -1 if there is none."""
    n, m = len(outer), len(begin)
    if not m or not n:
        return np.full(m, -1)
    is_inner = np.arange(n + m) >= n
    # Outer intervals come first where both start at once.
    order = np.argsort(np.concatenate([outer.begin, begin]), kind="stable")
    order = order[by_tensor(np.concatenate([outer.tensor, tensor])[order])]
    # The position of the latest outer interval before each position in that order.
    before = np.maximum.accumulate(np.where(is_inner[order], -1, np.arange(n + m)))
    latest = np.full(n + m, -1)
    latest[order] = np.where(before >= 0, order[before], -1)
    candidate = latest[n:]
    fits = (outer.tensor[candidate] == tensor) & (end <= outer.end[candidate])
    return np.where((candidate >= 0) & fits, candidate, -1)


def latest_before(outer: Activities, tensor: Ints, begin: Ints) -> Ints:
    """Find the tensor's latest outer interval that started before each moment; -1 if there is none."""
    endless = Activities(
        outer.tensor, outer.name, outer.level, outer.begin, np.full(len(outer), LATEST), outer.size
    )
    return within(endless, tensor, begin, begin)


def by_tensor(tensor: Ints) -> Ints:
    """Return the positions of rows by tensor; those of one tensor keep their order."""
    # Numbers of 16 bits are sorted much faster.
    short = int(tensor.max(initial=0)) < 1 << 16
    return np.argsort(tensor.astype(np.uint16) if short else tensor, kind="stable")


def distinct(numbers: Ints) -> tuple[Ints, Ints]:
    """Return the distinct numbers, ascending, and the index of each number among them."""
    # Tensors are numbered consecutively, so counting is faster than sorting.
    if int(numbers.max(initial=0)) < _MOST_IN_A_TABLE:
        used = np.bincount(numbers) > 0
        return np.flatnonzero(used), (np.cumsum(used) - 1)[numbers]
    return np.unique(numbers, return_inverse=True)


def added_us(begin: Ints, end: Ints, group: Ints | None = None) -> Ints:
    """Return the microseconds that each interval adds to the union of the intervals before it.

    Args:
        begin: starts of the intervals, ascending.
        end: ends of the intervals.
        group: the group of each interval, from 0 on; each group has its own union.
    """
    if not len(begin):
        return begin
    if group is None:
        reached = np.maximum.accumulate(end)
        before = np.append(begin[0], reached[:-1])
        own_part: Ints = np.maximum(end - np.maximum(begin, before), 0)
        return own_part
    order = np.argsort(group, kind="stable")
    first, until, groups = begin[order], end[order], group[order]
    zero, span = int(begin.min()), int(end.max()) - int(begin.min()) + 1
    # Each group is shifted after the previous one, so that one sweep handles all groups.
    shift = groups * span - zero
    added = np.zeros(len(begin), np.int64)
    added[order] = added_us(first + shift, until + shift)
    return added

"""A stretch of a timeline: whole steps, with everything that began in them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from stallscope.arrays.types import Bools, Ints
from stallscope.parsers.horovod_timeline import Activities, Ticks

ALLREDUCE = "ALLREDUCE"
_NEGOTIATION = "NEGOTIATE_"
# Parts in which data go between ranks, in which they are copied, and in which ranks wait for them.
_TRANSFERS = ("NCCL_", "MPI_", "GLOO_", "CCL_", "DDL_")
_COPIES = ("MEMCPY_", "COPY_")
_WAITS = ("WAIT_FOR_", "QUEUE")


@dataclass(frozen=True)
class Piece:
    """Activities in the order of their begins, with the ticks that may lie within them."""

    rows: Activities
    ticks: Ticks
    names: Sequence[str]
    #: Microseconds at which the piece's steps begin, and at which the step after it does.
    step_begins: Ints
    until: int | None

    @cached_property
    def negotiated(self) -> Activities:
        return self.rows.only((self.rows.level == 0) & self._is_negotiation)

    @cached_property
    def operations(self) -> Activities:
        return self.rows.only((self.rows.level == 0) & ~self._is_negotiation)

    @cached_property
    def parts(self) -> Activities:
        return self.rows.only((self.rows.level == 1) & ~self._is_negotiation)

    @cached_property
    def negotiated_allreduces(self) -> Activities:
        return self.negotiated.only(self.of(self.negotiated, (_NEGOTIATION + ALLREDUCE).__eq__))

    @cached_property
    def allreduces(self) -> Activities:
        """In the order of their begins, and tensors where those are the same."""
        found = self.operations.only(self.of(self.operations, ALLREDUCE.__eq__))
        return found.at(np.lexsort((found.tensor, found.begin)))

    @cached_property
    def allreduce_parts(self) -> tuple[Activities, Ints]:
        """Parts of allreduces, and for each of them which allreduce it is of."""
        mine = within(self.allreduces, self.parts.tensor, self.parts.begin, self.parts.end)
        return self.parts.only(mine >= 0), mine[mine >= 0]

    @cached_property
    def reductions(self) -> Ints:
        """Per allreduce, the reduction that it went through, from 0 on in the order of their begins."""
        operations = self.allreduces
        parts, mine = self.allreduce_parts
        # When each operation does something first, or is over.
        acts = operations.end.copy()
        np.minimum.at(acts, mine, parts.begin)
        return np.cumsum(np.append(True, acts[:-1] < operations.begin[1:])[: len(acts)]) - 1

    def of(self, rows: Activities, chosen: Callable[[str], bool]) -> Bools:
        """Of which rows the name is chosen."""
        return np.array([chosen(name) for name in self.names], bool)[rows.name]

    def kinds(self, rows: Activities) -> dict[str, Bools]:
        """Which parts wait, copy and transfer."""
        forms = {"wait": _WAITS, "copy": _COPIES, "transfer": _TRANSFERS}
        return {
            kind: self.of(rows, lambda name, form=form: name.startswith(form))  # type: ignore[misc]
            for kind, form in forms.items()
        }

    @cached_property
    def _is_negotiation(self) -> Bools:
        return self.of(self.rows, lambda name: name.startswith(_NEGOTIATION))


def is_gradients_negotiation(name: str) -> bool:
    """Whether an activity is the negotiation of an allreduce."""
    return name == _NEGOTIATION + ALLREDUCE


def within(outer: Activities, tensor: Ints, begin: Ints, end: Ints) -> Ints:
    """Per inner interval, the outer one of its tensor that it lies within; -1 where none is there."""
    n, m = len(outer), len(begin)
    if not m or not n:
        return np.full(m, -1)
    is_inner = np.arange(n + m) >= n
    order = np.lexsort(
        (is_inner, np.concatenate([outer.begin, begin]), np.concatenate([outer.tensor, tensor]))
    )
    # Where the latest outer one before each place stands in that order.
    before = np.maximum.accumulate(np.where(is_inner[order], -1, np.arange(n + m)))
    found = np.full(n + m, -1)
    found[order] = np.where(before >= 0, order[before], -1)
    mine = found[n:]
    fits = (outer.tensor[mine] == tensor) & (end <= outer.end[mine])
    return np.where((mine >= 0) & fits, mine, -1)


def latest_before(outer: Activities, tensor: Ints, begin: Ints) -> Ints:
    """Per moment, the tensor's latest outer interval that began before; -1 where none did."""
    endless = Activities(
        outer.tensor, outer.name, outer.level, outer.begin, np.full(len(outer), _NEVER), outer.size
    )
    return within(endless, tensor, begin, begin)


_NEVER = np.iinfo(np.int64).max


def added_us(begin: Ints, end: Ints, group: Ints | None = None) -> Ints:
    """What each interval adds to the union of those before it, of its own group where there are some.

    Args:
        begin: ascending.
        group: from 0 on; intervals of groups may lie between each other.
    """
    if not len(begin):
        return begin
    if group is None:
        reached = np.maximum.accumulate(end)
        before = np.append(begin[0], reached[:-1])
        own_part: Ints = np.maximum(end - np.maximum(begin, before), 0)
        return own_part
    order = np.argsort(group, kind="stable")
    first, until, own = begin[order], end[order], group[order]
    zero, span = int(begin.min()), int(end.max()) - int(begin.min()) + 1
    # Each group is shifted after the one before it, so that one sweep does for all.
    shift = own * span - zero
    added = np.zeros(len(begin), np.int64)
    added[order] = added_us(first + shift, until + shift)
    return added

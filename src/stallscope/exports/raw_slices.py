"""Make slices from ranks' own timestamps: validation, checkpoints, and steps outside of the ledger."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from stallscope.arrays.blocks import NULL
from stallscope.arrays.types import Bools, Ints

from .selection import Selection
from .worlds import World

STEP = "step"
#: The kinds that ``RawSlices.kind`` numbers.
KINDS = (STEP, "input", "compute", "validation", "checkpoint")

_END = np.iinfo(np.int64).max


@dataclass(frozen=True)
class RawSlices:
    """Slices ordered by start, nanoseconds on the time line; slices of a rank do not overlap."""

    begin: Ints
    end: Ints
    #: Positions of ranks in the world, and of kinds in KINDS.
    rank: Ints
    kind: Ints
    step: Ints
    #: -1 if unknown.
    epoch: Ints
    #: The recorded duration, even if the slice was cut.
    ns: Ints

    def __len__(self) -> int:
        return len(self.begin)

    def take(self, chosen: Bools | Ints | slice) -> RawSlices:
        """Return some of the slices."""
        return RawSlices(*(getattr(self, field.name)[chosen] for field in fields(self)))


def raw_slices(world: World, selection: Selection, begin: Ints, end: Ints) -> RawSlices:
    """Make the selected slices of a world, cut where the ledger's steps are.

    Args:
        world: the generation.
        selection: steps and ranks.
        begin: starts of the ledger's steps, on the time line.
        end: their ends.
    """
    found = _joined([*_of_stamps(world, selection), _between(world, selection)])
    at = np.searchsorted(world.ledger.steps, found.step)
    floor = np.append(world.span[0], end)[at]
    ceiling = np.append(begin, _END)[at]
    cut = _with(found, np.maximum(found.begin, floor), np.minimum(found.end, ceiling))
    apart = _untangled(cut.take(np.lexsort((cut.begin, cut.rank))))
    apart = apart.take(apart.end > apart.begin)
    return apart.take(np.argsort(apart.begin, kind="stable"))


def _of_stamps(world: World, selection: Selection) -> list[RawSlices]:
    """Make slices of steps outside of the ledger: input and compute, or the whole step."""
    aligned = world.aligned
    outside = (world.in_ledger < 0) & selection.steps(aligned.steps)
    if not outside.any():
        return []
    parts = []
    for rank in selection.of(aligned.ranks).tolist():
        begin, data, ready, reduced, end = (
            world.on_line(stamps[:, rank], rank)
            for stamps in (aligned.begin, aligned.data, aligned.ready, aligned.reduced, aligned.end)
        )
        staged = outside & aligned.measured[:, rank]
        # All timestamps, but not measured: the clock was set within this step.
        torn = (np.stack([begin, data, ready, reduced, end]) != NULL).all(axis=0) & ~staged
        until = np.where(end == NULL, next_begin(world, begin), end)
        whole = outside & ~staged & ~torn & (begin != NULL) & (until != NULL)
        parts += [
            _some(world, staged, rank, "input", begin, data),
            _some(world, staged, rank, "compute", data, ready),
            _some(world, whole, rank, STEP, begin, until),
        ]
    return parts


def next_begin(world: World, begin: Ints) -> Ints:
    """Return when the next step starts on the same rank; NULL if none follows in its epoch."""
    aligned = world.aligned
    follows = (np.diff(aligned.steps) == 1) & ~aligned.session_start[1:]
    follows &= aligned.epochs[1:] == aligned.epochs[:-1]
    after = np.full(len(begin), NULL)
    after[:-1] = np.where(follows, begin[1:], NULL)
    return after


def _some(world: World, chosen: Bools, rank: int, kind: str, begin: Ints, end: Ints) -> RawSlices:
    steps, epochs = world.aligned.steps[chosen], world.aligned.epochs[chosen]
    same = np.ones(len(steps), np.int64)
    own = begin[chosen], end[chosen]
    return RawSlices(*own, same * rank, same * KINDS.index(kind), steps, epochs, own[1] - own[0])


def _between(world: World, selection: Selection) -> RawSlices:
    """Make slices of validation and checkpoints, each with the next step, or the last one."""
    aligned, own = world.aligned, world.aligned.intervals
    kind = np.array([KINDS.index(str(name)) for name in own.kind], np.int64)
    next_at = np.searchsorted(aligned.steps, own.step)
    step = aligned.steps[np.minimum(next_at, len(aligned.steps) - 1)]
    epoch = np.where(next_at > 0, aligned.epochs[next_at - 1], -1)
    shift = world.shift[own.rank_index]
    begin, end = own.begin + shift, own.end + shift
    found = RawSlices(begin, end, own.rank_index, kind, own.step, epoch, own.end - own.begin)
    meant = np.isin(own.rank_index, selection.of(aligned.ranks)) & selection.steps(step)
    return found.take(meant)


def _joined(parts: list[RawSlices]) -> RawSlices:
    names = [field.name for field in fields(RawSlices)]
    return RawSlices(*(np.concatenate([getattr(p, name) for p in parts]) for name in names))


def _with(found: RawSlices, begin: Ints, end: Ints) -> RawSlices:
    return RawSlices(begin, end, found.rank, found.kind, found.step, found.epoch, found.ns)


def _untangled(ordered: RawSlices) -> RawSlices:
    """Cut slices of a rank so that none starts before the previous one has ended."""
    begin = ordered.begin.copy()
    edges = np.flatnonzero(np.diff(ordered.rank, prepend=-1, append=-1))
    for low, high in zip(edges[:-1], edges[1:], strict=True):
        ends = np.maximum.accumulate(ordered.end[low:high])
        begin[low + 1 : high] = np.maximum(begin[low + 1 : high], ends[:-1])
    return _with(ordered, begin, ordered.end)

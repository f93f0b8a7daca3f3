"""Match the ends of activities with their starts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stallscope.arrays.types import Bools, Ints

from .events import Events
from .rows import Activities, Columns

# A timeline has at most two for each tensor; a damaged one must not slow every block down.
_MOST_OPEN = 1 << 17


@dataclass(frozen=True)
class Opened(Columns):
    """Activities that have not ended, in the order of their starts."""

    tensor: Ints
    at: Ints
    name: Ints


@dataclass(frozen=True)
class Matched:
    """The activities that end in a block, in the order of their ends, and those still open."""

    activities: Activities
    opened: Opened
    #: The number of ends without a start or before it, and of starts that are given up.
    unmatched: int
    given_up: int


def matched(before: Opened, events: Events) -> Matched:
    """Match the starts and ends of activities that end in this block."""
    here = np.flatnonzero((events.kind == ord("B")) | (events.kind == ord("E")))
    tensor = np.concatenate([before.tensor, events.tensor[here]])
    at = np.concatenate([before.at, events.at[here]])
    name = np.concatenate([before.name, events.text[here]])
    size = np.concatenate([np.full(len(before.tensor), -1), events.size[here]])
    begins = np.concatenate([np.ones(len(before.tensor), bool), events.kind[here] == ord("B")])
    begin, end, level, unmatched = _pairs(tensor, begins)
    still_open = begins
    still_open[begin] = False
    backwards = at[end] < at[begin]
    if backwards.any():
        begin, end, level = begin[~backwards], end[~backwards], level[~backwards]
        unmatched += int(np.count_nonzero(backwards))
    opened = np.flatnonzero(still_open)
    return Matched(
        Activities(tensor[end], name[begin], level, at[begin], at[end], size[end]),
        Opened(tensor, at, name).take(opened[-_MOST_OPEN:]),
        unmatched,
        max(len(opened) - _MOST_OPEN, 0),
    )


def _pairs(tensor: Ints, begins: Bools) -> tuple[Ints, Ints, Ints, int]:
    """Match starts and ends: return positions of both, in the order of the ends, and the level.

    An end closes its tensor's latest open activity. The number of open activities is a walk that goes up
    with starts and down with ends; ends that would lead below 0 are dropped and counted. Among the
    starts and ends of a tensor at one height, each end follows its start.
    """
    if not len(tensor):
        return tensor, tensor, tensor, 0
    order = _in_order(tensor)
    up, tensors = begins[order], tensor[order]
    first = np.append(0, np.flatnonzero(tensors[1:] != tensors[:-1]) + 1)
    lengths = np.diff(np.append(first, len(tensors)))
    walk = np.cumsum(2 * up.view(np.int8) - 1, dtype=np.int64)
    walk -= np.repeat(np.append(0, walk[first[1:] - 1]), lengths)
    group = np.repeat(np.arange(len(first)), lengths)
    height, unmatched = walk + ~up, 0
    if int(walk.min()) < 0:
        lowest = _lowest(walk, group)
        # An end without a start leads the walk to a new low.
        before = np.append(0, lowest[:-1])
        before[first] = 0
        kept = lowest == before
        unmatched = int(np.count_nonzero(~kept))
        order, up, group, height = order[kept], up[kept], group[kept], (height - lowest)[kept]

    by_height = _in_order(group * (int(height.max(initial=0)) + 1) + height)
    position, up = order[by_height], up[by_height]
    # A start is followed by its end, unless the walk never returns to that height.
    closed = np.flatnonzero(up[:-1] & ~up[1:])
    begin_of, level_of = np.full(len(tensor), -1), np.zeros(len(tensor), np.int64)
    end = position[closed + 1]
    begin_of[end], level_of[end] = position[closed], height[by_height[closed]] - 1
    ends = np.flatnonzero(begin_of >= 0)
    return begin_of[ends], ends, level_of[ends], unmatched


def _lowest(walk: Ints, group: Ints) -> Ints:
    """Return the lowest point so far of each group's own walk, at most 0."""
    # Shift each group below the one before it, so that one sweep works for all.
    shift = group * (2 * len(walk) + 2)
    return np.minimum(np.minimum.accumulate(walk - shift) + shift, 0)


def _in_order(key: Ints) -> Ints:
    """Return the stable order of keys."""
    # Sorting numbers of 16 bits is much faster.
    short = int(key.max(initial=0)) < 1 << 16
    return np.argsort(key.astype(np.uint16) if short else key, kind="stable")

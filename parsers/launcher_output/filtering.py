"""Drop the lines that a caller does not need before they become Python objects."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from stallscope.arrays.types import Bools, Ints

from ..lines.blocks import LineBlock, Needle
from .splitting import Fragments

# Lines that are longer on average are overwritten bars, and all of them become objects.
_LONG_LINES = 2048


@dataclass(frozen=True)
class LineFilter:
    """Selects lines by short texts."""

    #: Each needed line contains one of these, or ends with it; ``\\d`` before or after a needle is any
    #: digit.
    needles: tuple[bytes, ...]
    #: Whether a line with a needle is needed.
    accepts: Callable[[bytes], object] = bool
    #: Updates of a bar have one of these: only the last of successive updates is needed.
    updates: tuple[bytes, ...] = ()
    #: Lines with one of these are not updates.
    not_updates: tuple[bytes, ...] = ()

    @cached_property
    def _needles(self) -> Sequence[Sequence[Needle]]:
        every = (self.needles, self.updates, self.not_updates)
        return [[Needle(needle) for needle in needles] for needles in every]

    def candidates(self, block: LineBlock, fragments: Fragments, needed: Bools) -> Bools:
        """Select the fragments that may be needed lines.

        Args:
            block: the block.
            fragments: its fragments.
            needed: fragments that are needed in any case.
        """
        if len(block.ends) * _LONG_LINES < block.size:
            return np.ones(len(needed), bool)
        line = _line_numbers(block, fragments)
        needles, updates, not_updates = self._needles
        chosen = _lines_with(needles, block)[line]
        is_update = _lines_showing(updates, block)[line]
        if is_update.any():
            alone = np.bincount(line)[line] == 1
            chosen |= is_update & ~alone
            # A line that is partly overwritten shows something else.
            differs = _overwritten(block) | _lines_with(not_updates, block)
            chosen &= ~(is_update & alone) | differs[line]
        chosen |= needed
        chosen[_last_of_each(np.flatnonzero(is_update & ~chosen), chosen, fragments.stream)] = True
        return chosen


def _line_numbers(block: LineBlock, fragments: Fragments) -> Ints:
    """Return the number of each fragment's line."""
    if len(fragments.end) == len(block.ends) and fragments.complete.all():
        return np.arange(len(fragments.end))
    return block.lines_of(fragments.start)


def _lines_with(needles: Sequence[Needle], block: LineBlock) -> Bools:
    """Return which lines of a block contain a needle."""
    matches = np.zeros(len(block.ends) + 1, bool)
    for needle in needles:
        matches[block.lines_of(block.places(needle))] = True
    return matches


def _lines_showing(needles: Sequence[Needle], block: LineBlock) -> Bools:
    """Return which lines of a block contain a needle that no carriage return has overwritten."""
    returns = _returns(block)
    last = np.full(len(block.ends) + 1, -1)
    last[block.lines_of(returns)] = returns
    matches = np.zeros(len(block.ends) + 1, bool)
    for needle in needles:
        places = block.places(needle)
        line = block.lines_of(places)
        matches[line[places > last[line]]] = True
    return matches


def _overwritten(block: LineBlock) -> Bools:
    """Return which lines contain carriage returns before their ends."""
    overwritten = np.zeros(len(block.ends) + 1, bool)
    overwritten[block.lines_of(_returns(block))] = True
    return overwritten


def _returns(block: LineBlock) -> Ints:
    """Find the carriage returns before the ends of lines."""
    at = block.having(ord("\r"))
    after = block.bytes[at + 1]
    return np.asarray(at[(after != ord("\n")) & (after != ord("\r"))])


def _last_of_each(updates: Ints, chosen: Bools, stream: Ints) -> Ints:
    """Return each stream's last updates before chosen fragments, and before the end of the block."""
    stretch = np.searchsorted(np.flatnonzero(chosen), updates)
    order = np.lexsort((stretch, stream[updates]))
    streams, stretch = stream[updates][order], stretch[order]
    last = np.append((streams[1:] != streams[:-1]) | (stretch[1:] != stretch[:-1]), True)
    last_updates: Ints = updates[order][last[: len(updates)]]
    return last_updates

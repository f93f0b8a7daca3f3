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

    def candidates(self, block: LineBlock, found: Fragments, needed: Bools) -> Bools:
        """Select the fragments that may be needed lines.

        Args:
            block: the block.
            found: its fragments.
            needed: fragments that are needed in any case.
        """
        if len(block.ends) * _LONG_LINES < block.size:
            return np.ones(len(needed), bool)
        line = _line_numbers(block, found)
        needles, updates, not_updates = self._needles
        chosen = _lines_with(needles, block)[line]
        is_update = _lines_showing(updates, block)[line]
        if is_update.any():
            alone = np.bincount(line)[line] == 1
            chosen |= is_update & ~alone
            # A line that is partly overwritten shows something else.
            other = _overwritten(block) | _lines_with(not_updates, block)
            chosen &= ~(is_update & alone) | other[line]
        chosen |= needed
        chosen[_last_of_each(np.flatnonzero(is_update & ~chosen), chosen, found.stream)] = True
        return chosen


def _line_numbers(block: LineBlock, found: Fragments) -> Ints:
    """Return the number of each fragment's line."""
    if len(found.end) == len(block.ends) and found.complete.all():
        return np.arange(len(found.end))
    return block.lines_of(found.start)


def _lines_with(needles: Sequence[Needle], block: LineBlock) -> Bools:
    """Return which lines of a block contain a needle."""
    found = np.zeros(len(block.ends) + 1, bool)
    for needle in needles:
        found[block.lines_of(block.places(needle))] = True
    return found


def _lines_showing(needles: Sequence[Needle], block: LineBlock) -> Bools:
    """Return which lines of a block contain a needle that no carriage return has overwritten."""
    returns = _returns(block)
    last = np.full(len(block.ends) + 1, -1)
    last[block.lines_of(returns)] = returns
    found = np.zeros(len(block.ends) + 1, bool)
    for needle in needles:
        places = block.places(needle)
        line = block.lines_of(places)
        found[line[places > last[line]]] = True
    return found


def _overwritten(block: LineBlock) -> Bools:
    """Return which lines contain carriage returns before their ends."""
    found = np.zeros(len(block.ends) + 1, bool)
    found[block.lines_of(_returns(block))] = True
    return found


def _returns(block: LineBlock) -> Ints:
    """Find the carriage returns before the ends of lines."""
    at = block.having(ord("\r"))
    after = block.bytes[at + 1]
    return np.asarray(at[(after != ord("\n")) & (after != ord("\r"))])


def _last_of_each(updates: Ints, chosen: Bools, stream: Ints) -> Ints:
    """Return each stream's last updates before chosen fragments, and before the end of the block."""
    stretch = np.searchsorted(np.flatnonzero(chosen), updates)
    order = np.lexsort((stretch, stream[updates]))
    own, stretch = stream[updates][order], stretch[order]
    last = np.append((own[1:] != own[:-1]) | (stretch[1:] != stretch[:-1]), True)
    found: Ints = updates[order][last[: len(updates)]]
    return found

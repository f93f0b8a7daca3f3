"""Blocks of what ranks print, less the lines that nobody wants: before they are taken apart by rank.

That can be done where every line is one rank's own from its label to its end, as in almost all of what
launchers print. Taking millions of lines apart takes far longer than to see which few are wanted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Protocol

import numpy as np
import numpy.typing as npt

Lines = npt.NDArray[np.bool_]


class Signs(Protocol):
    """By what wanted lines are known, as ``Wanted`` says it."""

    @property
    def signs(self) -> tuple[bytes, ...]: ...

    @property
    def passing(self) -> bytes: ...

    @property
    def within(self) -> re.Pattern[bytes] | None: ...


class Thinning:
    """Leaves out lines of blocks.

    Args:
        line: one line with its end, as all of them have to be; its group is the label.
        labels: how many labels there are in a block, also within lines.
        wanted: the lines to be kept; of those that pass, the last ones.
    """

    def __init__(
        self, line: re.Pattern[bytes], labels: Callable[[bytes], int], wanted: Signs
    ) -> None:
        self._line = line
        self._labels = labels
        self._wanted = wanted

    def thinned(self, block: bytes, known: Iterable[bytes]) -> bytes:
        """The block without lines that nobody wants; all of it where they cannot be told.

        Args:
            known: labels of streams that have had their first line.
        """
        parts = self._line.split(block)
        labels = parts[1::2]
        if any(parts[0::2]) or not set(labels) <= set(known) or self._labels(block) > len(labels):
            return block
        ends = np.flatnonzero(np.frombuffer(block, np.uint8) == ord("\n")) + 1
        if len(ends) > len(labels):
            return block
        kept = np.flatnonzero(self._kept(block, ends, labels))
        starts = np.append(0, ends)[kept]
        pairs = zip(starts.tolist(), ends[kept].tolist(), strict=True)
        return b"".join([block[start:end] for start, end in pairs])

    def _kept(self, block: bytes, ends: npt.NDArray[np.int64], labels: list[bytes]) -> Lines:
        wanted = _with(self._wanted.signs, block, ends)
        passing = _with(filter(None, [self._wanted.passing]), block, ends)
        if passing.any():
            # What was written over does not pass: something else may be shown of it.
            wanted &= ~passing | _with([b"\r"], block, ends)
        if self._wanted.within is not None:
            _unless_within(self._wanted.within, block, ends, wanted)
        wanted[_last_ones(passing, wanted, labels)] = True
        return wanted


def _with(signs: Iterable[bytes], block: bytes, ends: npt.NDArray[np.int64]) -> Lines:
    """Which lines have one of these in them."""
    found = np.zeros(len(ends), bool)
    for sign in signs:
        at = [match.start() for match in re.finditer(re.escape(sign), block)]
        found[np.searchsorted(ends, at, "right")] = True
    return found


def _unless_within(
    pattern: re.Pattern[bytes], block: bytes, ends: npt.NDArray[np.int64], wanted: Lines
) -> None:
    places = np.flatnonzero(wanted)
    pairs = zip(np.append(0, ends)[places].tolist(), (ends[places] - 1).tolist(), strict=True)
    wanted[places] = [pattern.search(block, start, end) is not None for start, end in pairs]


def _last_ones(passing: Lines, wanted: Lines, labels: list[bytes]) -> list[int]:
    """Of each label the last passing lines before others that are wanted, and before the end."""
    places = np.flatnonzero(passing)
    stretch = np.searchsorted(np.flatnonzero(wanted), places)
    last = {
        (before, labels[place]): place
        for before, place in zip(stretch.tolist(), places.tolist(), strict=True)
    }
    return list(last.values())

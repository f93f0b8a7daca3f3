"""How much of a timeline's time its activities cover together."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from stallscope.arrays.types import Ints

from .piece import Piece, added_us


class UnionTally:
    """Microseconds; all that is kept of earlier pieces is how far they reached."""

    def __init__(self) -> None:
        self._reached: dict[str, int] = {}
        self._sums: dict[str, int] = defaultdict(int)
        self._first: int | None = None
        self._last = 0

    def add(self, piece: Piece) -> None:
        rows = piece.rows
        if not len(rows):
            return
        first, last = int(rows.begin[0]), int(rows.end.max())
        self._first = first if self._first is None else min(self._first, first)
        self._last = max(self._last, last)
        self._cover("negotiating", piece.negotiated.begin, piece.negotiated.end)
        self._cover("operating", piece.operations.begin, piece.operations.end)
        parts = piece.parts
        for code in np.flatnonzero(np.bincount(parts.name)).tolist():
            own = parts.name == code
            self._cover(f"part {piece.names[code]}", parts.begin[own], parts.end[own])

    @property
    def span(self) -> int:
        """From the first activity to the last one."""
        return 0 if self._first is None else self._last - self._first

    @property
    def negotiating(self) -> int:
        return self._sums["negotiating"]

    @property
    def operating(self) -> int:
        return self._sums["operating"]

    @property
    def by_name(self) -> dict[str, int]:
        """Of the parts of operations."""
        return {
            name.removeprefix("part "): took
            for name, took in self._sums.items()
            if name.startswith("part ")
        }

    def _cover(self, what: str, begin: Ints, end: Ints) -> None:
        if not len(begin):
            return
        reached = self._reached.get(what, int(begin[0]))
        begin, end = np.maximum(begin, reached), np.maximum(end, reached)
        self._sums[what] += int(added_us(begin, end).sum())
        self._reached[what] = int(end.max())

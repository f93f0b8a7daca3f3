"""Measure how much of a timeline's time its activities cover."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from stallscope.arrays.types import Ints

from .segment import ActivitySegment, added_us


class UnionTally:
    """Collects unions of intervals, microseconds; keeps only the ends of earlier segments."""

    def __init__(self) -> None:
        self._reached: dict[str, int] = {}
        self._sums: dict[str, int] = defaultdict(int)
        self._first: int | None = None
        self._last = 0

    def add(self, segment: ActivitySegment) -> None:
        rows = segment.rows
        if not len(rows):
            return
        first, last = int(rows.begin[0]), int(rows.end.max())
        self._first = first if self._first is None else min(self._first, first)
        self._last = max(self._last, last)
        self._cover("negotiating", segment.negotiated.begin, segment.negotiated.end)
        self._cover("operating", segment.operations.begin, segment.operations.end)
        parts = segment.parts
        for code in np.flatnonzero(np.bincount(parts.name)).tolist():
            chosen = parts.name == code
            self._cover(f"part {segment.names[code]}", parts.begin[chosen], parts.end[chosen])

    @property
    def span(self) -> int:
        """Return the microseconds from the first activity to the last one."""
        return 0 if self._first is None else self._last - self._first

    @property
    def negotiating(self) -> int:
        """Return the microseconds in which any tensor was negotiated."""
        return self._sums["negotiating"]

    @property
    def operating(self) -> int:
        """Return the microseconds in which any operation ran."""
        return self._sums["operating"]

    @property
    def by_name(self) -> dict[str, int]:
        """Return the microseconds of the parts of operations, by name."""
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

"""Sets of time spans as arrays: unions, differences, and how much of a window they cover."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from stallscope.arrays.types import Ints

NO_TIMES: Ints = np.zeros(0, np.int64)


@dataclass(frozen=True)
class DisjointSpans:
    """Ordered spans that do not overlap, nanoseconds. ``union_of`` makes them of any spans."""

    begin: Ints
    end: Ints

    def __len__(self) -> int:
        return len(self.begin)

    @classmethod
    def union_of(cls, begin: Ints, end: Ints) -> DisjointSpans:
        """Join spans that overlap or touch; drop spans without length."""
        if (end <= begin).any():
            kept = end > begin
            begin, end = begin[kept], end[kept]
        if (begin[1:] < begin[:-1]).any():
            order = np.argsort(begin, kind="stable")
            begin, end = begin[order], end[order]
        if not len(begin) or (begin[1:] > end[:-1]).all():
            return cls(begin, end)
        reached = np.maximum.accumulate(end)
        first = np.append(0, np.flatnonzero(begin[1:] > reached[:-1]) + 1)
        return cls(begin[first], reached[np.append(first[1:], len(begin)) - 1])

    @classmethod
    def joined(cls, several: list[DisjointSpans]) -> DisjointSpans:
        """Return the union of several sets."""
        if not several:
            return cls(NO_TIMES, NO_TIMES)
        return cls.union_of(
            *(
                np.concatenate([getattr(spans, name) for spans in several])
                for name in ("begin", "end")
            )
        )

    def __or__(self, spans: DisjointSpans) -> DisjointSpans:
        return DisjointSpans.joined([self, spans])

    def __sub__(self, spans: DisjointSpans) -> DisjointSpans:
        """Return the parts that the other spans do not cover."""
        spans = spans._near(self)
        # Each edge changes how many spans of each set are open: +1 where one starts.
        edges = np.concatenate([self.begin, self.end, spans.begin, spans.end])
        left, right = len(self), len(spans)
        change = np.repeat([1, -1, 0, 0], [left, left, right, right])
        cover = np.repeat([0, 0, 1, -1], [left, left, right, right])
        order = np.argsort(edges, kind="stable")
        edges = edges[order]
        alone = (np.cumsum(change[order]) > 0) & (np.cumsum(cover[order]) == 0)
        at = np.flatnonzero(alone)
        return DisjointSpans.union_of(edges[at], edges[np.minimum(at + 1, len(edges) - 1)])

    def within(self, low: Ints, high: Ints) -> Ints:
        """Return how much of each window they cover, nanoseconds; windows that end early are empty."""
        return self._until(np.maximum(high, low)) - self._until(low)

    @cached_property
    def _before(self) -> Ints:
        """Return the total length of all spans before each one."""
        return np.append(0, np.cumsum(self.end - self.begin))

    def _near(self, spans: DisjointSpans) -> DisjointSpans:
        """Return the spans that overlap any of the other spans, often a few of many."""
        change = np.zeros(len(self) + 1, np.int32)
        np.add.at(change, np.searchsorted(self.end, spans.begin, "right"), 1)
        np.add.at(change, np.searchsorted(self.begin, spans.end), -1)
        near = np.cumsum(change[:-1]) > 0
        return DisjointSpans(self.begin[near], self.end[near])

    def _until(self, moment: Ints) -> Ints:
        """Return how much they cover before each moment."""
        at = np.searchsorted(self.begin, moment, "right")
        beyond = np.append(0, self.end)[at] - moment if len(self) else np.zeros_like(moment)
        return np.asarray(self._before[at] - np.maximum(beyond, 0) * (at > 0))

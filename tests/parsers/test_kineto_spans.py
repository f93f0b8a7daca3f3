"""Sets of time spans against the same sets of nanoseconds."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from stallscope.parsers.formats.kineto.kineto_events import DisjointSpans

MOST = 40
SPANS = st.lists(st.tuples(st.integers(0, MOST), st.integers(0, MOST)), max_size=8)


def made_of(pairs: list[tuple[int, int]]) -> DisjointSpans:
    begin, end = np.array(pairs, np.int64).reshape(-1, 2).T
    return DisjointSpans.union_of(begin, end)


def points(pairs: list[tuple[int, int]]) -> set[int]:
    return {at for begin, end in pairs for at in range(begin, end)}


def covered(spans: DisjointSpans) -> set[int]:
    pairs = list(zip(spans.begin.tolist(), spans.end.tolist(), strict=True))
    assert all(begin < end for begin, end in pairs)
    # They neither overlap nor touch.
    assert all(end < begin for (_, end), (begin, _) in zip(pairs, pairs[1:], strict=False))
    return points(pairs)


@given(SPANS, SPANS)
def test_sets_are_those_of_their_points(
    left: list[tuple[int, int]], right: list[tuple[int, int]]
) -> None:
    first, second = made_of(left), made_of(right)
    assert covered(first) == points(left)
    assert covered(first | second) == points(left) | points(right)
    assert covered(first - second) == points(left) - points(right)


@given(SPANS, SPANS)
def test_windows_contain_as_much_as_their_points(
    spans: list[tuple[int, int]], windows: list[tuple[int, int]]
) -> None:
    low, high = np.array(windows, np.int64).reshape(-1, 2).T
    lengths = made_of(spans).within(low, high).tolist()
    assert lengths == [len(points(spans) & set(range(*window))) for window in windows]

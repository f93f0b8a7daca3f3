"""Chunks of columns share memory where they are equal, and are joined without a copy side by side."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from stallscope.arrays import arrow
from stallscope.arrays.chunks import Constants, SharedChunks, joined


def numbers(*values: int | None) -> pa.Array:
    return pa.array(values, pa.int64())


def test_equal_chunks_are_one() -> None:
    shared = SharedChunks(Constants(pa.int64()))
    first = shared.of(numbers(1, 2, 3))
    assert shared.of(numbers(1, 2, 3)) is first
    for chunks in (numbers(1, 2), numbers(1, 2, 4), numbers(1, 2, None), numbers(1, 2, None)):
        assert shared.of(chunks) is chunks


def test_one_value_is_in_memory_once() -> None:
    constants = Constants(pa.int32())
    for value, rows in (
        (7, 3),
        (7, 100_000),
        (None, 5),
        (None, 70_000),
        *((n, 40_000) for n in range(20)),
    ):
        chunks = constants.of(value, rows)
        assert pa.chunked_array(chunks).to_pylist() == [value] * rows
        assert len({chunk.buffers()[1].address for chunk in chunks}) == 1
    assert constants.of(3, 0) == []


def test_chunks_side_by_side_are_not_copied() -> None:
    whole = np.arange(10)
    parts = [arrow.array(whole[:4]), arrow.array(whole[4:9]), arrow.array(whole[9:])]
    chunk = joined(parts, pa.int64())
    assert chunk.to_pylist() == whole.tolist()
    assert chunk.buffers()[1].address == whole.ctypes.data


def test_other_chunks_are_copied() -> None:
    whole = np.arange(10)
    apart = [arrow.array(whole[:4]), arrow.array(whole[5:])]
    assert joined(apart, pa.int64()).to_pylist() == [0, 1, 2, 3, 5, 6, 7, 8, 9]
    assert joined([numbers(1, None), numbers(2)], pa.int64()).to_pylist() == [1, None, 2]
    assert joined([pa.array(["a"]), pa.array(["b"])], pa.string()).to_pylist() == ["a", "b"]
    assert len(joined([], pa.int64())) == 0

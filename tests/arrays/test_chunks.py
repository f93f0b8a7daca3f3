"""Chunks of columns share memory where they are equal."""

from __future__ import annotations

import pyarrow as pa

from stallscope.arrays.memory import Constants, SharedChunks


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

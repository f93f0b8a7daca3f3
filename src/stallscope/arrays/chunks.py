"""Share memory between chunks of columns: many ranks have the same steps, epochs and samples."""

from __future__ import annotations

from threading import Lock

import numpy as np
import pyarrow as pa

from . import arrow

#: Columns of many shorter chunks are slow.
FEWEST_ROWS = 2**12
# With many different values, chunks are short, so that one for each of thousands of ranks takes little
# memory. With only a few values, there are as few chunks as possible.
_SHORT = 2**14
_FEW = 8


class SharedChunks:
    """Makes the chunks of one column; equal ones share their memory. Thread-safe.

    Args:
        constants: chunks of one value, of the column's type; other columns may share them.
    """

    def __init__(self, constants: Constants) -> None:
        self.constant = constants.of
        self._last: pa.Array | None = None
        self._one_at_a_time = Lock()

    def kept(self, chunk: pa.Array) -> list[pa.Array]:
        """Return chunks with the values of this one, shared with other chunks if possible."""
        if chunk.null_count == len(chunk):
            return self.constant(None, len(chunk))
        values = arrow.numbers(chunk)
        if not chunk.null_count and (values == values[0]).all():
            return self.constant(int(values[0]), len(values))
        return [self.of(chunk)]

    def of(self, chunk: pa.Array) -> pa.Array:
        """Return the previous chunk if both are equal, or else this one."""
        with self._one_at_a_time:
            if self._last is None or not _equal(self._last, chunk):
                self._last = chunk
            return self._last


class Constants:
    """Makes chunks of one value each. Thread-safe.

    Args:
        kind: a type of whole numbers.
    """

    def __init__(self, kind: pa.DataType) -> None:
        self._kind = kind
        self._chunks: dict[int | None, pa.Array] = {}
        self._one_at_a_time = Lock()

    def of(self, value: int | None, rows: int) -> list[pa.Array]:
        """Return chunks with this many rows of one value."""
        if not rows:
            return []
        with self._one_at_a_time:
            most = rows if len(self._chunks) < _FEW else min(rows, _SHORT)
            chunk = self._chunks.get(value)
            if chunk is None or len(chunk) < most:
                chunk = self._chunks[value] = self._new(value, most)
        return [chunk.slice(0, min(len(chunk), rows - at)) for at in range(0, rows, len(chunk))]

    def _new(self, value: int | None, rows: int) -> pa.Array:
        if value is None:
            return pa.nulls(rows, self._kind)
        return arrow.array(np.full(rows, value, arrow.dtype_of(self._kind)), self._kind)


def _equal(first: pa.Array, second: pa.Array) -> bool:
    """Whether two chunks have the same numbers; chunks with nulls count as different."""
    if len(first) != len(second) or first.null_count or second.null_count:
        return False
    return np.array_equal(arrow.numbers(first), arrow.numbers(second))


def are_long(chunks: list[pa.Array]) -> bool:
    """Whether chunks are long enough to be used one by one."""
    return sum(map(len, chunks)) >= FEWEST_ROWS * len(chunks)

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
        values = arrow.numbers(chunk)
        if len(values) and not chunk.null_count and (values == values[0]).all():
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


def joined(chunks: list[pa.Array], kind: pa.DataType) -> pa.Array:
    """Concatenate the chunks of a column, without a copy if they are contiguous in memory."""
    if not chunks:
        return pa.nulls(0, kind)
    whole = _contiguous(chunks) if pa.types.is_integer(kind) else None
    return pa.concat_arrays(chunks) if whole is None else whole


def are_long(chunks: list[pa.Array]) -> bool:
    """Whether chunks are long enough to be used one by one."""
    return sum(map(len, chunks)) >= FEWEST_ROWS * len(chunks)


def _contiguous(chunks: list[pa.Array]) -> pa.Array | None:
    """Return chunks that are contiguous in memory as one array, which keeps all of them; else None."""
    width = arrow.dtype_of(chunks[0].type).itemsize
    begin = end = _address(chunks[0])
    for chunk in chunks:
        if chunk.buffers()[0] is not None or _address(chunk) != end:
            return None
        end += len(chunk) * width
    values = pa.foreign_buffer(begin, end - begin, base=list(chunks))
    return pa.Array.from_buffers(chunks[0].type, values.size // width, [None, values])


def _address(chunk: pa.Array) -> int:
    """Return the address of a chunk's numbers in memory."""
    width = arrow.dtype_of(chunk.type).itemsize
    return int(chunk.buffers()[1].address + chunk.offset * width)

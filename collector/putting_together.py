"""A table of batches, in one piece, wherever there is room for its columns."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from stallscope.room import Room


def put_together(
    schema: pa.Schema, batches: Iterable[pa.RecordBatch], rows: int, room: Room
) -> pa.Table:
    """A table of whole numbers.

    Args:
        schema: of all batches.
        batches: as many rows as told.
        rows: how many.
        room: makes the columns' arrays.
    """
    columns = [_Column(field.type, rows, room) for field in schema]
    for batch in batches:
        for column, values in zip(columns, batch.columns, strict=True):
            column.put(values)
    return pa.table([column.whole() for column in columns], schema=schema)


class _Column:
    def __init__(self, kind: pa.DataType, rows: int, room: Room) -> None:
        self._kind, self._filled = kind, 0
        self._values: npt.NDArray[np.generic] = room((rows, 1), kind.to_pandas_dtype())[:, 0]
        # A bit each, which may stay in memory; or how many there are, of which none is missing.
        self._there: list[pa.Array | int] = []

    def put(self, values: pa.Array) -> None:
        own = slice(self._filled, self._filled + len(values))
        self._there.append(pc.is_valid(values) if values.null_count else len(values))
        if values.null_count:
            values = pc.fill_null(values, 0)
        self._values[own] = values.to_numpy()
        self._filled = own.stop

    def whole(self) -> pa.Array:
        values = pa.py_buffer(self._values)
        return pa.Array.from_buffers(self._kind, self._filled, [self._bits(), values])

    def _bits(self) -> pa.Buffer | None:
        """Which values are there, a bit each; None where all of them are."""
        if all(isinstance(one, int) for one in self._there):
            return None
        parts = [
            pa.array(np.ones(one, bool)) if isinstance(one, int) else one for one in self._there
        ]
        return pa.concat_arrays(parts).buffers()[1]

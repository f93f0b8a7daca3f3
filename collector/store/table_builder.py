"""A table of parts that come in any order, in one piece, wherever there is room for its columns."""

from __future__ import annotations

from threading import Lock

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from stallscope.arrays.memory import Allocator


class Together:
    """A table of whole numbers; several threads may fill it, each its own rows.

    Args:
        schema: its columns.
        rows: how many it will have.
        allocate: makes the columns' arrays.
    """

    def __init__(self, schema: pa.Schema, rows: int, allocate: Allocator) -> None:
        self._schema = schema
        self._columns = {field.name: _Column(field.type, rows, allocate) for field in schema}

    def put(self, name: str, at: int, values: pa.Array) -> None:
        """A column's values from a row on."""
        self._columns[name].put(at, values)

    def fill(self, name: str, at: int, rows: int, value: int | None) -> None:
        """One and the same value in so many rows of a column, from a row on."""
        self._columns[name].fill(slice(at, at + rows), value)

    def table(self) -> pa.Table:
        """What there is when every row has been put."""
        columns = [column.whole() for column in self._columns.values()]
        return pa.table(columns, schema=self._schema)


class _Column:
    def __init__(self, kind: pa.DataType, rows: int, allocate: Allocator) -> None:
        self._kind, self._rows, self._allocate = kind, rows, allocate
        self._values: npt.NDArray[np.generic] = allocate((rows, 1), kind.to_pandas_dtype())[:, 0]
        # Which values are there; None as long as all of them are.
        self._there: npt.NDArray[np.bool_] | None = None
        self._lock = Lock()

    def put(self, at: int, values: pa.Array) -> None:
        own = slice(at, at + len(values))
        if values.type != self._kind:
            values = values.cast(self._kind)
        if values.null_count:
            self._missing()[own] = pc.is_valid(values).to_numpy(zero_copy_only=False)
            values = pc.fill_null(values, 0)
        self._values[own] = values.to_numpy()

    def fill(self, own: slice, value: int | None) -> None:
        if value is None:
            self._missing()[own] = False
        # There are zeros already, which take no memory until they are written.
        elif value:
            self._values[own] = value

    def whole(self) -> pa.Array:
        there = self._there
        bits = None if there is None else pa.py_buffer(np.packbits(there, bitorder="little"))
        buffers = [bits, pa.py_buffer(self._values)]
        return pa.Array.from_buffers(self._kind, self._rows, buffers)

    def _missing(self) -> npt.NDArray[np.bool_]:
        with self._lock:
            if self._there is None:
                there = self._allocate((self._rows, 1), np.bool_)[:, 0]
                there.fill(True)
                self._there = there
        return self._there

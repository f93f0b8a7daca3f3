"""Build a table in preallocated memory from parts that arrive in any order."""

from __future__ import annotations

from threading import Lock

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from stallscope.arrays.memory import Allocator


class TableBuilder:
    """Builds a table of integers; several threads may fill different rows.

    Args:
        schema: the columns.
        rows: the number of rows.
        allocate: allocates the columns' arrays.
    """

    def __init__(self, schema: pa.Schema, rows: int, allocate: Allocator) -> None:
        self._schema = schema
        self._columns = {field.name: _Column(field.type, rows, allocate) for field in schema}

    def put(self, name: str, at: int, values: pa.Array) -> None:
        """Set a column's values, starting at a row."""
        self._columns[name].put(at, values)

    def fill(self, name: str, at: int, rows: int, value: int | None) -> None:
        """Set this many rows of a column to one value, starting at a row."""
        self._columns[name].fill(slice(at, at + rows), value)

    def table(self) -> pa.Table:
        """Return the finished table."""
        columns = [column.whole() for column in self._columns.values()]
        return pa.table(columns, schema=self._schema)


class _Column:
    def __init__(self, kind: pa.DataType, rows: int, allocate: Allocator) -> None:
        self._kind, self._rows, self._allocate = kind, rows, allocate
        self._values: npt.NDArray[np.generic] = allocate((rows, 1), kind.to_pandas_dtype())[:, 0]
        # The validity of each value; None while all are valid.
        self._valid: npt.NDArray[np.bool_] | None = None
        self._lock = Lock()

    def put(self, at: int, values: pa.Array) -> None:
        own = slice(at, at + len(values))
        if values.type != self._kind:
            values = values.cast(self._kind)
        if values.null_count:
            self._validity()[own] = pc.is_valid(values).to_numpy(zero_copy_only=False)
            values = pc.fill_null(values, 0)
        self._values[own] = values.to_numpy()

    def fill(self, own: slice, value: int | None) -> None:
        if value is None:
            self._validity()[own] = False
        # New arrays are zero, and zeros take no memory until they are written.
        elif value:
            self._values[own] = value

    def whole(self) -> pa.Array:
        valid = self._valid
        bits = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
        buffers = [bits, pa.py_buffer(self._values)]
        return pa.Array.from_buffers(self._kind, self._rows, buffers)

    def _validity(self) -> npt.NDArray[np.bool_]:
        with self._lock:
            if self._valid is None:
                valid = self._allocate((self._rows, 1), np.bool_)[:, 0]
                valid.fill(True)
                self._valid = valid
        return self._valid

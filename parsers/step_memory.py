"""Keep the steps of logs while files are read, so that joining thousands of logs copies nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from stallscope.arrays import arrow
from stallscope.arrays.chunks import FEWEST_ROWS, Constants, SharedChunks
from stallscope.run import TIMESTAMPS

from .base import Parsed
from .tables import STEP_ROWS

# Logs with this many bytes together are joined in no time.
_FEWEST_BYTES = 2**25
# Logs have lines of different lengths.
_MORE_ROWS = 1.1


class StepMemory:
    """The memory of the steps of logs, in the order in which they are read.

    Timestamps lie side by side; steps, epochs and samples that are equal in consecutive logs are in
    memory once.

    Args:
        size: about how many bytes all logs have together.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._timestamps: dict[str, _SideBySide] = {}
        self._shared: dict[str, SharedChunks] = {}

    def kept(self, one: Parsed) -> Parsed:
        """Return a log whose steps are in this memory; the same one if that is not worth it."""
        steps = one.steps
        if self._size < _FEWEST_BYTES or steps.num_rows < FEWEST_ROWS or steps.schema != STEP_ROWS:
            return one
        if not self._timestamps:
            self._begin(int(steps.num_rows * max(1.0, self._size / max(one.log.size, 1))))
        columns = [self._chunks(name, steps[name]) for name in STEP_ROWS.names]
        return replace(one, steps=pa.table(columns, schema=STEP_ROWS), more=())

    def _begin(self, rows: int) -> None:
        rows = int(rows * _MORE_ROWS)
        self._timestamps = {name: _SideBySide(rows) for name in TIMESTAMPS}
        constants = {kind: Constants(kind) for kind in STEP_ROWS.types}
        self._shared = {field.name: SharedChunks(constants[field.type]) for field in STEP_ROWS}

    def _chunks(self, name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
        if column.null_count:
            return column
        if name in self._timestamps:
            found = [self._timestamps[name].add(chunk) for chunk in column.chunks]
        else:
            shared = self._shared[name]
            found = [piece for chunk in column.chunks for piece in shared.kept(chunk)]
        return pa.chunked_array(found, column.type)


class _SideBySide:
    """One array that is filled from its start. Memory that is never written to is not taken.

    Args:
        rows: about how many rows come.
    """

    def __init__(self, rows: int) -> None:
        self._values, self._filled = np.empty(rows, np.int64), 0

    def add(self, chunk: pa.Array) -> pa.Array:
        """Return a copy of a chunk, beside the one before it."""
        if self._filled + len(chunk) > len(self._values):
            # More rows than expected: joining them will copy.
            self._values, self._filled = np.empty(max(len(self._values), len(chunk)), np.int64), 0
        own = self._values[self._filled : self._filled + len(chunk)]
        own[:] = arrow.numbers(chunk)
        self._filled += len(chunk)
        return arrow.array(own)

"""Keep the steps of logs while files are read, so that joining thousands of logs copies nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from stallscope.arrays import arrow
from stallscope.arrays.chunks import FEWEST_ROWS, Constants, SharedChunks
from stallscope.run import TIMESTAMPS

from ..base import Parsed
from ..tables import STEP_ROWS

# Logs with fewer bytes together are joined quickly.
_FEWEST_BYTES = 2**25
# Logs have lines of different lengths.
_MORE_ROWS = 1.1


class StepMemory:
    """Memory for the steps of logs, in the order of reading.

    Timestamps of all logs are contiguous; steps, epochs and samples that are equal in consecutive logs
    are stored once.

    Args:
        size: the approximate size of all logs, bytes.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._timestamps: dict[str, _Contiguous] = {}
        self._shared: dict[str, SharedChunks] = {}

    def kept(self, log: Parsed) -> Parsed:
        """Return a log with its steps in this memory; the same one if moving them is not worth it."""
        steps = log.steps
        if self._size < _FEWEST_BYTES or steps.num_rows < FEWEST_ROWS or steps.schema != STEP_ROWS:
            return log
        if not self._timestamps:
            self._begin(int(steps.num_rows * max(1.0, self._size / max(log.log.size, 1))))
        columns = [self._chunks(name, steps[name]) for name in STEP_ROWS.names]
        return replace(log, steps=pa.table(columns, schema=STEP_ROWS), more=())

    def _begin(self, rows: int) -> None:
        rows = int(rows * _MORE_ROWS)
        self._timestamps = {name: _Contiguous(rows) for name in TIMESTAMPS}
        constants = {kind: Constants(kind) for kind in STEP_ROWS.types}
        self._shared = {field.name: SharedChunks(constants[field.type]) for field in STEP_ROWS}

    def _chunks(self, name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
        if column.null_count:
            return column
        if name in self._timestamps:
            chunks = [self._timestamps[name].add(chunk) for chunk in column.chunks]
        else:
            shared = self._shared[name]
            chunks = [piece for chunk in column.chunks for piece in shared.kept(chunk)]
        return pa.chunked_array(chunks, column.type)


class _Contiguous:
    """An array that is filled from its start; untouched memory is not allocated.

    Args:
        rows: the approximate number of rows.
    """

    def __init__(self, rows: int) -> None:
        self._values, self._filled = np.empty(rows, np.int64), 0

    def add(self, chunk: pa.Array) -> pa.Array:
        """Return a copy of a chunk, right after the one before it in memory."""
        if self._filled + len(chunk) > len(self._values):
            # There are more rows than expected: joining them will copy.
            self._values, self._filled = np.empty(max(len(self._values), len(chunk)), np.int64), 0
        copy = self._values[self._filled : self._filled + len(chunk)]
        copy[:] = arrow.numbers(chunk)
        self._filled += len(chunk)
        return arrow.array(copy)

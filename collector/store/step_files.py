"""Write steps as Parquet files, on this machine or on executors, and read them."""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from threading import Lock

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from stallscope.arrays import arrow
from stallscope.arrays.blocks import on_all_cores
from stallscope.arrays.memory import FEWEST_ROWS, Allocator, Constants, SharedChunks, allocator_for
from stallscope.run import STEPS_SCHEMA, TIMESTAMPS

# Smaller logs share a row group, because each row group takes extra time to read.
_ROWS_OF_SEVERAL_LOGS = 65_536
# Times differ little from row to row: delta encoding takes a third of the bytes of a dictionary.
_DELTA = "DELTA_BINARY_PACKED"
_TIMES = ("step", "begin", "data", "ready", "reduced", "end")

# A batch fits into a CPU cache; a task is large enough to be worth a thread.
_ROWS_AT_A_TIME = 2**16
_ROWS_PER_TASK = 2**18


def write_rows(steps: pa.Table, file: Path | io.RawIOBase) -> None:
    """Write steps, sorted by log, into a file at a path or into an open file."""
    groups = itertools.pairwise(_row_groups(arrow.numbers(steps["log"])))
    write_logs((steps.slice(start, end - start) for start, end in groups), steps.schema, file)


def write_logs(logs: Iterable[pa.Table], schema: pa.Schema, file: Path | io.RawIOBase) -> None:
    """Write one row group per table; each has the steps of one log, or of several small ones."""
    with pq.ParquetWriter(
        file,
        schema,
        use_dictionary=[name for name in schema.names if name not in _TIMES],
        column_encoding=dict.fromkeys(_TIMES, _DELTA),
    ) as writer:
        for steps in logs:
            writer.write_table(steps, row_group_size=max(1, steps.num_rows))


def _row_groups(logs: npt.NDArray[np.int32]) -> list[int]:
    """Return the starts of row groups, and the end of the last; they lie between two logs."""
    edges = np.flatnonzero(np.diff(logs, prepend=-1, append=-1)).tolist()
    starts = edges[:1]
    for start, end in itertools.pairwise(edges):
        if end - starts[-1] > _ROWS_OF_SEVERAL_LOGS and start > starts[-1]:
            starts.append(start)
    return [*starts, *edges[-1:]] if len(logs) else [0, 0]


# -- Read the steps of collected runs from Parquet files, on all CPU cores ------------------------


def read_steps(paths: Sequence[Path]) -> pa.Table:
    """Read the steps of files, in order, into one table.

    Raises:
        OSError, ValueError, pa.ArrowException: if a file cannot be read.
    """
    tasks = list(_tasks(paths))
    rows = sum(task.rows for task in tasks)
    steps = _Steps(rows, allocator_for(rows))
    return steps.table(on_all_cores(steps.read, tasks))


@dataclass(frozen=True)
class _Task:
    """Consecutive row groups of one file, for one thread."""

    path: Path
    metadata: pq.FileMetaData
    #: The first row of the table that they fill.
    at: int
    groups: list[int] = field(default_factory=list)
    #: The number of rows of each group.
    sizes: list[int] = field(default_factory=list)

    @property
    def rows(self) -> int:
        return sum(self.sizes)

    def batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield batches of some columns of the row groups."""
        with pq.ParquetFile(self.path, metadata=self.metadata) as file:
            yield from file.iter_batches(
                _ROWS_AT_A_TIME, row_groups=self.groups, columns=list(names), use_threads=False
            )


def _tasks(paths: Sequence[Path]) -> Iterator[_Task]:
    at = 0
    for path in paths:
        metadata = pq.read_metadata(path)
        task = _Task(path, metadata, at)
        for group in range(metadata.num_row_groups):
            size = metadata.row_group(group).num_rows
            if task.rows and task.rows + size > _ROWS_PER_TASK:
                yield task
                task = _Task(path, metadata, at)
            task.groups.append(group)
            task.sizes.append(size)
            at += size
        if task.rows:
            yield task


class _Steps:
    """Columns that several threads fill: timestamps in one piece, others in chunks that share memory.

    With a table that pyarrow reads whole, a report needs 1.3 × the memory (8 ranks × 1,000,000 steps:
    1.53 GB against 1.15 GB), and timestamps could not be in memory-mapped files.

    Args:
        rows: the number of rows.
        allocate: allocates the columns' arrays.
    """

    def __init__(self, rows: int, allocate: Allocator) -> None:
        self._allocate = allocate
        self._timestamps = self._columns(TIMESTAMPS, rows)
        constants = {kind: Constants(kind) for kind in STEPS_SCHEMA.types}
        self._shared = {
            field.name: SharedChunks(constants[field.type])
            for field in STEPS_SCHEMA
            if field.name not in TIMESTAMPS
        }

    def _columns(self, names: Iterable[str], rows: int) -> dict[str, _Column]:
        types = {name: STEPS_SCHEMA.field(name).type for name in names}
        return {name: _Column(kind, rows, self._allocate) for name, kind in types.items()}

    def read(self, task: _Task) -> dict[str, list[pa.Array]]:
        """Read the timestamps into their places; return the chunks of the other columns, by name."""
        others = self._columns(self._shared, task.rows)
        places = {name: (column, task.at) for name, column in self._timestamps.items()}
        places |= {name: (column, 0) for name, column in others.items()}
        # Files of older versions lack newer columns.
        names = [name for name in STEPS_SCHEMA.names if name in task.metadata.schema.names]
        for name in places.keys() - names:
            column, start = places[name]
            column.put(start, pa.nulls(task.rows, pa.int64()))
        at = 0
        for batch in task.batches(names):
            for name in names:
                column, start = places[name]
                column.put(start + at, batch[name])
            at += len(batch)
        return {name: self._chunks(name, column.whole(), task) for name, column in others.items()}

    def _chunks(self, name: str, whole: pa.Array, task: _Task) -> list[pa.Array]:
        """Return a column of a task in chunks, one per row group if these are long."""
        long = task.rows >= FEWEST_ROWS * len(task.sizes)
        sizes = task.sizes if long else [task.rows]
        parts = (
            whole.slice(*part) for part in zip(accumulate(sizes, initial=0), sizes, strict=False)
        )
        return [chunk for part in parts for chunk in self._shared[name].kept(part)]

    def table(self, parts: Sequence[dict[str, list[pa.Array]]]) -> pa.Table:
        """Return the table, with the chunks of its tasks in order."""
        columns = [
            self._timestamps[name].whole()
            if name in self._timestamps
            else pa.chunked_array([chunk for part in parts for chunk in part[name]], kind)
            for name, kind in zip(STEPS_SCHEMA.names, STEPS_SCHEMA.types, strict=True)
        ]
        return pa.table(columns, schema=STEPS_SCHEMA)


class _Column:
    def __init__(self, kind: pa.DataType, rows: int, allocate: Allocator) -> None:
        self._kind, self._rows, self._allocate = kind, rows, allocate
        self._values: npt.NDArray[np.generic] = allocate((rows, 1), arrow.dtype_of(kind))[:, 0]
        # The validity of each value; None while all are valid.
        self._valid: npt.NDArray[np.bool_] | None = None
        self._lock = Lock()

    def put(self, at: int, values: pa.Array) -> None:
        rows = slice(at, at + len(values))
        if values.null_count:
            self._validity()[rows] = arrow.numbers(pc.is_valid(values))
            if values.null_count == len(values):
                # New arrays are zero, and zeros take no memory until they are written.
                return
            values = arrow.filled(values, 0)
        self._values[rows] = arrow.numbers(values.cast(self._kind))

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

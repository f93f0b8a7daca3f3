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
from stallscope.arrays.chunks import FEWEST_ROWS, Constants, SharedChunks
from stallscope.arrays.memory import Allocator, allocator_for
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


# -- reading steps ---------------------------------------------------------------------------------
#
# Read the steps of collected runs from Parquet files, some row groups at a time, on all CPU cores.


def read_steps(paths: Sequence[Path]) -> pa.Table:
    """Read the steps of files, in order, into one table.

    Raises:
        OSError, ValueError, pa.ArrowException: if a file cannot be read.
    """
    groups = [group for path in paths for group in _File.of(path).groups()]
    rows = sum(group.rows for group in groups)
    whole = _TableBuilder(STEPS_SCHEMA, rows, allocator_for(rows))
    chunks = on_all_cores(lambda task: task.read(whole), list(_tasks(groups)))
    return whole.table(chunks)


@dataclass(frozen=True)
class _File:
    path: Path
    metadata: pq.FileMetaData
    #: The names of its columns, in order.
    names: list[str]

    @classmethod
    def of(cls, path: Path) -> _File:
        metadata = pq.read_metadata(path)
        return cls(path, metadata, metadata.schema.names)

    def groups(self) -> Iterator[_Group]:
        """Yield the row groups that have rows."""
        for number in range(self.metadata.num_row_groups):
            rows = self.metadata.row_group(number).num_rows
            if rows:
                yield _Group(self, number, rows, self._constants(number))

    def batches(self, groups: Sequence[int], names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield batches of some columns of row groups."""
        with pq.ParquetFile(self.path, metadata=self.metadata) as file:
            yield from file.iter_batches(
                _ROWS_AT_A_TIME, row_groups=list(groups), columns=list(names), use_threads=False
            )

    def _constants(self, number: int) -> dict[str, int | None]:
        """Return the columns that are constant in a row group, by its statistics, with their values."""
        # Files of older versions lack newer columns.
        constants = dict.fromkeys(set(STEPS_SCHEMA.names) - set(self.names))
        group = self.metadata.row_group(number)
        for index, name in enumerate(self.names):
            column = group.column(index)
            known = column.statistics
            if known is None or not known.has_null_count:
                continue
            if known.null_count == column.num_values:
                constants[name] = None
            elif known.has_min_max and not known.null_count and known.min == known.max:
                constants[name] = known.min
        return constants


@dataclass(frozen=True)
class _Group:
    file: _File
    number: int
    rows: int
    constants: dict[str, int | None]


@dataclass
class _Task:
    """Consecutive row groups of one file, for one thread."""

    #: The first row of the table that they fill.
    at: int
    groups: list[_Group] = field(default_factory=list)

    @property
    def rows(self) -> int:
        return sum(group.rows for group in self.groups)

    def accepts(self, group: _Group) -> bool:
        same_file = group.file is self.groups[-1].file
        return same_file and self.rows + group.rows <= _ROWS_PER_TASK

    def read(self, whole: _TableBuilder) -> _Chunks:
        """Read the rows into their places in the table; return the chunks of its other columns."""
        part = whole.part(self.at, [group.rows for group in self.groups])
        common = set.intersection(*(set(group.constants) for group in self.groups))
        for name in common:
            part.fill(name, [group.constants[name] for group in self.groups])
        names = [name for name in STEPS_SCHEMA.names if name not in common]
        file, at = self.groups[0].file, 0
        for batch in file.batches([group.number for group in self.groups], names) if names else ():
            for name in names:
                part.put(name, at, batch[name])
            at += len(batch)
        return part.chunks()


def _tasks(groups: Sequence[_Group]) -> Iterator[_Task]:
    task, at = None, 0
    for group in groups:
        if task is None or not task.accepts(group):
            if task is not None:
                yield task
            task = _Task(at)
        task.groups.append(group)
        at += group.rows
    if task is not None:
        yield task


#: Chunks of columns, by name.
_Chunks = dict[str, list[pa.Array]]


class _TableBuilder:
    """Builds a table of integers; several threads may fill different rows.

    Args:
        schema: the columns.
        rows: the number of rows.
        allocate: allocates the columns' arrays.
    """

    def __init__(self, schema: pa.Schema, rows: int, allocate: Allocator) -> None:
        self.schema, self.allocate = schema, allocate
        self.timestamps = {
            name: _Column(schema.field(name).type, rows, allocate) for name in TIMESTAMPS
        }
        constants = {kind: Constants(kind) for kind in schema.types}
        self.shared = {
            field.name: SharedChunks(constants[field.type])
            for field in schema
            if field.name not in self.timestamps
        }

    def part(self, at: int, rows: Sequence[int]) -> _TablePart:
        """Return the part of the table that begins at a row.

        Args:
            at: the row.
            rows: the numbers of rows of its row groups.
        """
        return _TablePart(self, at, rows)

    def table(self, parts: Sequence[_Chunks]) -> pa.Table:
        """Return the finished table, with the chunks of its parts in order."""
        columns = [
            self.timestamps[field.name].whole()
            if field.name in self.timestamps
            else pa.chunked_array(
                [chunk for part in parts for chunk in part[field.name]], field.type
            )
            for field in self.schema
        ]
        return pa.table(columns, schema=self.schema)


class _TablePart:
    """Some consecutive rows of a table, which one thread fills."""

    def __init__(self, table: _TableBuilder, at: int, rows: Sequence[int]) -> None:
        self._table, self._at, self._rows = table, at, rows
        self._total = sum(rows)
        self._by_group = self._total >= FEWEST_ROWS * len(rows)
        self._chunks: _Chunks = {}
        self._read: dict[str, _Column] = {}

    def put(self, name: str, at: int, values: pa.Array) -> None:
        """Set a column's values, starting at a row of the part."""
        column, start = self._column(name)
        column.put(start + at, values)

    def fill(self, name: str, values: Sequence[int | None]) -> None:
        """Set a column to one value per row group."""
        shared, rows = self._table.shared.get(name), self._rows
        if len(set(values)) == 1 and not self._by_group:
            values, rows = values[:1], [self._total]
        pairs = list(zip(values, rows, strict=True))
        if shared is not None and (self._by_group or len(pairs) == 1):
            self._chunks[name] = [chunk for pair in pairs for chunk in shared.constant(*pair)]
            return
        column, at = self._column(name)
        for value, count in pairs:
            column.fill(slice(at, at + count), value)
            at += count

    def _column(self, name: str) -> tuple[_Column, int]:
        """Return an array with a column's values, and the index at which this part starts."""
        column = self._table.timestamps.get(name)
        if column is not None:
            return column, self._at
        if name not in self._read:
            kind = self._table.schema.field(name).type
            self._read[name] = _Column(kind, self._total, self._table.allocate)
        return self._read[name], 0

    def chunks(self) -> _Chunks:
        """Return the chunks of the columns that are not one array."""
        rows = self._rows if self._by_group else [self._total]
        places = list(zip(accumulate(rows, initial=0), rows, strict=False))
        for name, column in self._read.items():
            whole, share = column.whole(), self._table.shared[name].of
            self._chunks[name] = [share(whole.slice(*place)) for place in places]
        return self._chunks


class _Column:
    def __init__(self, kind: pa.DataType, rows: int, allocate: Allocator) -> None:
        self._kind, self._rows, self._allocate = kind, rows, allocate
        self._values: npt.NDArray[np.generic] = allocate((rows, 1), arrow.dtype_of(kind))[:, 0]
        # The validity of each value; None while all are valid.
        self._valid: npt.NDArray[np.bool_] | None = None
        self._lock = Lock()

    def put(self, at: int, values: pa.Array) -> None:
        rows = slice(at, at + len(values))
        if values.type != self._kind:
            values = values.cast(self._kind)
        if values.null_count:
            self._validity()[rows] = arrow.numbers(pc.is_valid(values))
            values = arrow.filled(values, 0)
        self._values[rows] = arrow.numbers(values)

    def fill(self, rows: slice, value: int | None) -> None:
        if value is None:
            self._validity()[rows] = False
        # New arrays are zero, and zeros take no memory until they are written.
        elif value:
            self._values[rows] = value

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

"""Pivot a table of steps into arrays of steps × ranks, here or on a cluster."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from . import arrow
from .blocks import NULL, Array, Matrix, on_all_cores
from .local_matrix import LocalMatrix
from .memory import Allocator
from .types import Bools, Ints

T = TypeVar("T")
#: Rows that are processed together.
ROWS = 2**20


@dataclass(frozen=True)
class Pivoted:
    """One generation's rows: S steps × R ranks."""

    steps: Ints
    ranks: tuple[int, ...]
    #: Per step the epoch that ranks recorded, the latest if they differ; -1 if none recorded it.
    epochs: Ints
    #: Per step whether it is the first, or any rank's first in another session.
    session_start: Bools
    #: Columns by name, NULL where missing.
    cells: Matrix
    #: Whether it is known that no column has missing values.
    complete: bool = False


def pivot(
    table: pa.Table, names: Sequence[str], allocate: Allocator, sessions: Ints | None = None
) -> Pivoted:
    """Pivot some columns of one generation's steps.

    Args:
        table: its rows.
        names: the columns.
        allocate: makes arrays that are not views of the table.
        sessions: per log its training session; None if each log has its own.
    """
    if isinstance(table, RemoteTable):
        return table.pivot(names, sessions)
    rank_by_rank = _RankByRank.of(table)
    if rank_by_rank is None:
        rows = _Rows(table, _Numbers.of(table["step"]), _Numbers.of(table["rank"]))
        facts, steps, ranks = rows.read(sessions), rows.steps.numbers, rows.ranks.numbers
        arrays = rows.scattered(names, allocate)
    else:
        facts, steps, ranks = rank_by_rank.read(sessions), rank_by_rank.steps, rank_by_rank.ranks
        shape = (len(steps), len(ranks))
        arrays = {name: _reshaped(table[name], shape, allocate) for name in names}
    return Pivoted(
        steps,
        tuple(ranks.tolist()),
        facts.epochs,
        facts.session_start,
        # They may be views of the table: nothing writes to them.
        LocalMatrix.of(arrays, allocate),
        rank_by_rank is not None and not any(table[name].null_count for name in names),
    )


def by_parts(
    table: pa.Table | RemoteTable, columns: Sequence[str], kernel: Callable[..., T], *args: Any
) -> list[T]:
    """Run a kernel on parts of a table, each with at least one row, and return its results.

    Args:
        table: steps, log by log.
        columns: the columns that the kernel needs.
        kernel: a module-level function of a part and ``args``.
    """
    if isinstance(table, RemoteTable):
        return table.by_parts(columns, kernel, *args)
    return on_all_cores(lambda part: kernel(part, *args), list(in_parts(table.select(columns))))


def without_logs(table: pa.Table, logs: Sequence[int]) -> pa.Table:
    """Return the rows that are not of these logs."""
    if isinstance(table, RemoteTable):
        return table.without_logs(logs)
    if not logs:
        return table
    return table.filter(pc.invert(pc.is_in(table["log"], arrow.array(logs, pa.int32()))))


def with_log_numbers(table: pa.Table, numbers: Ints) -> pa.Table:
    """Renumber the logs of a table: ``numbers`` has the new number of each log."""
    log = arrow.array(numbers[arrow.numbers(table["log"])], pa.int32())
    return table.set_column(table.schema.get_field_index("log"), "log", log)


def in_parts(table: pa.Table) -> Iterator[pa.Table]:
    """Yield a table's rows in parts, so that intermediate arrays stay small."""
    return (table.slice(begin, ROWS) for begin in range(0, table.num_rows, ROWS))


def of_generation(table: pa.Table, generation: int) -> pa.Table:
    """Return the rows of one generation; a view of the table where they are contiguous."""
    if isinstance(table, RemoteTable):
        return table.of_generation(generation)
    column = table["generation"]
    if not table.num_rows or _are_all(column, generation):
        return table
    count = sum(
        np.count_nonzero(arrow.numbers(part["generation"]) == generation)
        for part in in_parts(table)
    )
    first = pc.index(column, arrow.scalar(generation, pa.int32())).as_py()
    rows = table.slice(first, count)
    if _are_all(rows["generation"], generation):
        return rows
    return table.filter(arrow.equal(column, generation))


def _are_all(column: pa.ChunkedArray, value: int) -> bool:
    return bool(pc.min_max(column).as_py() == {"min": value, "max": value})


def _reshaped(column: pa.ChunkedArray, shape: tuple[int, int], allocate: Allocator) -> Array:
    """Reshape a column in which every rank has all steps, in order."""
    if column.num_chunks == 1 and not column.null_count:
        return np.asarray(arrow.numbers(column).reshape(shape[::-1]).T)
    alike = _alike(column, shape)
    if alike is not None:
        return alike
    array = allocate(shape, np.int64)
    flat = array.T.reshape(-1)
    for begin in range(0, len(column), ROWS):
        part = _filled(column.slice(begin, ROWS))
        flat[begin : begin + len(part)] = part
    return array


def _alike(column: pa.ChunkedArray, shape: tuple[int, int]) -> Array | None:
    """Return a column in which all ranks share one chunk, or None for others."""
    first = column.chunk(0)
    if column.null_count or len(first) != shape[0]:
        return None
    place = (first.buffers()[1].address, first.offset, len(first))
    if any(
        (chunk.buffers()[1].address, chunk.offset, len(chunk)) != place for chunk in column.chunks
    ):
        return None
    return np.broadcast_to(_filled(first), shape[::-1]).T


class _Numbers:
    """The distinct numbers of a column, ascending."""

    # Counting is ten times faster than sorting; gaps in the numbers cost some memory.
    _GAPS = 1000

    def __init__(self, numbers: Ints, place: Ints | None) -> None:
        self.numbers, self._place = numbers, place

    @classmethod
    def of(cls, column: pa.ChunkedArray) -> _Numbers:
        if not len(column):
            return cls(np.zeros(0, np.int64), None)
        span = pc.min_max(column).as_py()
        first, last = span["min"], span["max"]
        if last - first >= 2 * len(column) + cls._GAPS:
            return cls(np.sort(arrow.numbers(pc.unique(column))).astype(np.int64), None)
        present = np.zeros(last - first + 1, bool)
        for begin in range(0, len(column), ROWS):
            present[arrow.numbers(column.slice(begin, ROWS)) - first] = True
        return cls(np.flatnonzero(present) + first, np.cumsum(present) - 1)

    def __len__(self) -> int:
        return len(self.numbers)

    def positions(self, values: Ints) -> Ints:
        if self._place is None:
            return np.searchsorted(self.numbers, values)
        if len(self._place) == len(self.numbers):
            return np.asarray(values - self.numbers[0])
        return np.asarray(self._place[values - self.numbers[0]])


@dataclass(frozen=True)
class _Facts:
    epochs: Ints
    session_start: Bools

    @classmethod
    def joined(cls, steps: int, parts: Iterable[_PartFacts]) -> _Facts:
        epochs = np.full(steps, -1, np.int64)
        starts = np.zeros(steps, bool)
        starts[:1] = True
        for part in parts:
            part_epochs = epochs[part.first : part.first + len(part.epochs)]
            np.maximum(part_epochs, part.epochs, out=part_epochs)
            starts[part.starts] = True
        return cls(epochs, starts)


@dataclass(frozen=True)
class _PartFacts:
    #: Position of the first step of these rows, and the latest epoch of each step from there on.
    first: int
    epochs: Ints
    starts: Ints


@dataclass(frozen=True)
class _RankByRank:
    """A table in which every rank has all steps, rank by rank and in order: the common case."""

    table: pa.Table
    steps: Ints
    ranks: Ints

    @classmethod
    def of(cls, table: pa.Table) -> _RankByRank | None:
        """Return the table if it is of this kind; None otherwise."""
        count = _rows_of_first(table["rank"])
        if not count or table.num_rows % count:
            return None
        steps = arrow.numbers(table["step"].slice(0, count))
        begins = np.arange(0, table.num_rows, count)
        ranks = arrow.numbers_at(table["rank"], begins).astype(np.int64)
        if (np.diff(steps) <= 0).any() or (np.diff(ranks) <= 0).any():
            return None
        rank_by_rank = cls(table, steps, ranks)
        return (
            rank_by_rank
            if all(on_all_cores(rank_by_rank._as_assumed, rank_by_rank._parts()))
            else None
        )

    def read(self, sessions: Ints | None) -> _Facts:
        """Read the epochs and session starts of the steps."""
        parts = on_all_cores(partial(self._read_part, sessions), self._parts())
        return _Facts.joined(len(self.steps), parts)

    def _parts(self) -> list[tuple[slice, slice]]:
        """Return the ranks and steps of each part: whole ranks, or some steps of a long one."""
        ranks, steps = len(self.ranks), len(self.steps)
        many = max(1, ROWS // steps)
        return [
            (slice(rank, min(rank + many, ranks)), slice(step, min(step + ROWS, steps)))
            for rank in range(0, ranks, many)
            for step in range(0, steps, ROWS)
        ]

    def _column(self, name: str, ranks: slice, steps: slice) -> Array:
        """Return a column as ranks × steps."""
        first = ranks.start * len(self.steps) + steps.start
        shape = (ranks.stop - ranks.start, steps.stop - steps.start)
        column = self.table[name].slice(first, shape[0] * shape[1])
        return np.asarray(arrow.numbers(arrow.filled(column, -1)).reshape(shape))

    def _as_assumed(self, part: tuple[slice, slice]) -> bool:
        ranks, steps = part
        alike = (self._column("rank", *part) == self.ranks[ranks, None].astype(np.int32)).all()
        return bool(alike and (self._column("step", *part) == self.steps[steps]).all())

    def _read_part(self, sessions: Ints | None, part: tuple[slice, slice]) -> _PartFacts:
        ranks, steps = part
        before = min(steps.start, 1)
        session = self._column("log", ranks, slice(steps.start - before, steps.stop))
        starts = np.zeros(0, np.int64)
        if (session != session[:, :1]).any():
            session = session if sessions is None else sessions[session]
            changes = (session[:, 1:] != session[:, :-1]).any(axis=0)
            starts = np.flatnonzero(changes) + steps.start + 1 - before
        return _PartFacts(steps.start, self._column("epoch", *part).max(axis=0), starts)


def _rows_of_first(rank: pa.ChunkedArray) -> int:
    """Return the number of rows before the second rank's."""
    for begin in range(0, len(rank), ROWS):
        others = arrow.numbers(rank.slice(begin, ROWS)) != rank[0].as_py()
        if others.any():
            return begin + int(others.argmax())
    return len(rank)


@dataclass(frozen=True)
class _Rows:
    """A table's rows in any order, processed in parts so that intermediate arrays stay small."""

    table: pa.Table
    steps: _Numbers
    ranks: _Numbers

    def read(self, sessions: Ints | None) -> _Facts:
        """Read the epochs and session starts of the steps."""
        parts = on_all_cores(partial(self._read_part, sessions), self._begins())
        return _Facts.joined(len(self.steps), parts)

    def scattered(self, names: Sequence[str], allocate: Allocator) -> dict[str, Array]:
        """Return columns as arrays of steps × ranks."""
        shape = (len(self.steps), len(self.ranks))
        arrays = {name: allocate(shape, np.int64) for name in names}
        flat = {name: array.T.reshape(-1) for name, array in arrays.items()}
        # The first write to new memory is slow: let all cores do it.
        on_all_cores(lambda array: array.fill(NULL), list(flat.values()))

        def put(begin: int) -> None:
            part = self.table.slice(begin, ROWS)
            rank, row = self._position(part)
            position = rank * len(self.steps) + row
            for name, array in flat.items():
                array[position] = _filled(part[name])

        on_all_cores(put, self._begins())
        return arrays

    def _begins(self) -> range:
        return range(0, self.table.num_rows, ROWS)

    def _position(self, part: pa.Table) -> tuple[Ints, Ints]:
        """Return the position of each row's rank and step."""
        rank = self.ranks.positions(arrow.numbers(part["rank"]).astype(np.int64))
        return rank, self.steps.positions(arrow.numbers(part["step"]))

    def _read_part(self, sessions: Ints | None, begin: int) -> _PartFacts:
        # Include the previous row, which shows whether the first one starts a session.
        before = min(begin, 1)
        part = self.table.slice(begin - before, ROWS + before)
        rank, row = self._position(part)
        session = arrow.numbers(part["log"])
        if sessions is not None:
            session = sessions[session]
        changes = (session[1:] != session[:-1]) & (rank[1:] == rank[:-1])
        first = int(row.min())
        epochs = np.full(int(row.max()) - first + 1, -1, np.int64)
        known = arrow.numbers(arrow.filled(part["epoch"], -1)).astype(np.int64)
        np.maximum.at(epochs, row - first, known)
        return _PartFacts(first, epochs, row[1:][changes])


def _filled(column: arrow.Column) -> Ints:
    if column.null_count:
        column = arrow.filled(column.cast(pa.int64()), NULL)
    return np.asarray(arrow.numbers(column), np.int64)


# -- Define tables of steps that stay on a cluster, which runs kernels on them --------------------


class RemoteTable(ABC):
    """Replaces ``Run.steps`` if no row should be copied to this process."""

    @property
    @abstractmethod
    def num_rows(self) -> int:
        """Return the number of rows."""

    @abstractmethod
    def of_generation(self, generation: int) -> RemoteTable:
        """Return the rows of one generation."""

    @abstractmethod
    def as_run_of_generation(self, generation: int, numbers: Ints) -> RemoteTable:
        """Return the rows of one generation, as the table of a run with only that generation's logs.

        Args:
            generation: the generation.
            numbers: per log its new number; -1 for logs of other generations.
        """

    @abstractmethod
    def without_logs(self, logs: Sequence[int]) -> RemoteTable:
        """Return the rows that are not of these logs."""

    @abstractmethod
    def by_parts(self, columns: Sequence[str], kernel: Callable[..., T], *args: Any) -> list[T]:
        """Run a kernel on parts of the table, each with at least one row, and return its results.

        Args:
            columns: the columns that the kernel needs.
            kernel: a module-level function of a part and ``args``.
        """

    @abstractmethod
    def pivot(self, names: Sequence[str], sessions: Ints | None) -> Pivoted:
        """Pivot some columns of the steps."""

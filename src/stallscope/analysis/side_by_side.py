"""Rows of a table of steps as arrays of step × rank."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stallscope.room import Room

from .away import AwayTable
from .blocks import NULL, Array, Bools, Cells, HeldCells, Ints

T = TypeVar("T")

#: Rows that are looked at together.
ROWS = 2**20


@dataclass(frozen=True)
class SideBySide:
    """One generation's rows: S steps × R ranks."""

    steps: Ints
    ranks: tuple[int, ...]
    #: Per step the epoch that a rank put it in, the latest where they differ; -1 where none did.
    epochs: Ints
    #: Per step whether it is the first of all, or a rank's first one in another session.
    session_start: Bools
    #: Columns by name, NULL where missing.
    cells: Cells


def side_by_side(
    table: pa.Table, names: Sequence[str], room: Room, sessions: Ints | None = None
) -> SideBySide:
    """Some columns of a generation's steps, rank by rank.

    Args:
        table: its rows.
        names: the columns.
        room: where arrays may lie that are not the table's own memory.
        sessions: per log the training session that it was recorded in; None where each has its own.
    """
    if isinstance(table, AwayTable):
        return table.side_by_side(names, sessions)
    rows = _Rows(table, _Numbers.of(table["step"]), _Numbers.of(table["rank"]))
    facts = rows.read(sessions)
    shape = (len(rows.steps), len(rows.ranks))
    arrays = (
        {name: _as_it_lies(table[name], shape, room) for name in names}
        if facts.regular
        else rows.scattered(names, room)
    )
    return SideBySide(
        rows.steps.numbers,
        tuple(rows.ranks.numbers.tolist()),
        facts.epochs,
        facts.session_start,
        # They may be the table's own memory, which nobody writes to.
        HeldCells.of(arrays, room),
    )


def by_parts(table: pa.Table | AwayTable, kernel: Callable[..., T], *args: Any) -> list[T]:
    """What a kernel finds in parts of a table, log by log and with at least a row each.

    Args:
        table: steps that come log by log.
        kernel: a function of a module over a part and ``args``.
    """
    if isinstance(table, AwayTable):
        return table.by_parts(kernel, *args)
    return [kernel(part, *args) for part in in_parts(table)]


def without_logs(table: pa.Table, logs: Sequence[int]) -> pa.Table:
    """The rows of other logs than these."""
    if isinstance(table, AwayTable):
        return table.without_logs(logs)
    if not logs:
        return table
    return table.filter(pc.invert(pc.is_in(table["log"], pa.array(logs, pa.int32()))))


def in_parts(table: pa.Table) -> Iterator[pa.Table]:
    """A table's rows, so many at a time that what is made of them stays small."""
    return (table.slice(begin, ROWS) for begin in range(0, table.num_rows, ROWS))


def of_generation(table: pa.Table, generation: int) -> pa.Table:
    """The rows of one generation; the table itself, or a part of it, where they follow each other."""
    if isinstance(table, AwayTable):
        return table.of_generation(generation)
    counts = [int((part["generation"].to_numpy() == generation).sum()) for part in in_parts(table)]
    if sum(counts) == table.num_rows:
        return table
    first = pc.index(table["generation"], pa.scalar(generation, pa.int32())).as_py()
    own = table.slice(first, sum(counts))
    if pc.min_max(own["generation"]).as_py() == {"min": generation, "max": generation}:
        return own
    return table.filter(pc.equal(table["generation"], generation))


def _as_it_lies(column: pa.ChunkedArray, shape: tuple[int, int], room: Room) -> Array:
    """A column of which every rank has all steps, in order."""
    if not column.null_count:
        return np.asarray(column.to_numpy().reshape(shape[::-1]).T)
    array = room(shape, np.int64)
    flat = array.T.reshape(-1)
    for begin in range(0, len(column), ROWS):
        part = _filled(column.slice(begin, ROWS))
        flat[begin : begin + len(part)] = part
    return array


class _Numbers:
    """The different numbers of a column, ascending."""

    # Counting is ten times faster than sorting; gaps in the numbers may cost it some memory.
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
            return cls(np.sort(pc.unique(column).to_numpy()).astype(np.int64), None)
        present = np.zeros(last - first + 1, bool)
        for begin in range(0, len(column), ROWS):
            present[column.slice(begin, ROWS).to_numpy() - first] = True
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
    #: Whether every rank has all steps, rank by rank and in order.
    regular: bool


@dataclass(frozen=True)
class _PartFacts:
    #: Position of the first step that the rows are about, and from there on the latest epoch.
    first: int
    epochs: Ints
    starts: Ints
    regular: bool


@dataclass(frozen=True)
class _Rows:
    """A table's rows, some of them at a time: what is made of them on the way stays small."""

    table: pa.Table
    steps: _Numbers
    ranks: _Numbers

    def read(self, sessions: Ints | None) -> _Facts:
        """What the rows tell of steps."""
        epochs = np.full(len(self.steps), -1, np.int64)
        starts = np.zeros(len(self.steps), bool)
        starts[:1] = True
        regular = self.table.num_rows == len(self.steps) * len(self.ranks)
        with ThreadPoolExecutor(pa.cpu_count()) as pool:
            for part in pool.map(lambda begin: self._read_part(begin, sessions), self._begins()):
                own = epochs[part.first : part.first + len(part.epochs)]
                np.maximum(own, part.epochs, out=own)
                starts[part.starts] = True
                regular &= part.regular
        return _Facts(epochs, starts, bool(regular))

    def scattered(self, names: Sequence[str], room: Room) -> dict[str, Array]:
        """Columns as arrays of step × rank, wherever their rows are."""
        shape = (len(self.steps), len(self.ranks))
        arrays = {name: room(shape, np.int64) for name in names}
        for array in arrays.values():
            array.fill(NULL)
        flat = {name: array.T.reshape(-1) for name, array in arrays.items()}

        def put(begin: int) -> None:
            part = self.table.slice(begin, ROWS)
            rank, row = self._position(part)
            position = rank * len(self.steps) + row
            for name, array in flat.items():
                array[position] = _filled(part[name])

        with ThreadPoolExecutor(pa.cpu_count()) as pool:
            list(pool.map(put, self._begins()))
        return arrays

    def _begins(self) -> Iterator[int]:
        return iter(range(0, self.table.num_rows, ROWS))

    def _position(self, part: pa.Table) -> tuple[Ints, Ints]:
        """Per row the position of its rank and of its step."""
        rank = self.ranks.positions(part["rank"].to_numpy().astype(np.int64))
        return rank, self.steps.positions(part["step"].to_numpy())

    def _read_part(self, begin: int, sessions: Ints | None) -> _PartFacts:
        # With the row before it, which tells whether a session begins with its first one.
        before = min(begin, 1)
        part = self.table.slice(begin - before, ROWS + before)
        rank, row = self._position(part)
        session = part["log"].to_numpy()
        if sessions is not None:
            session = sessions[session]
        changes = (session[1:] != session[:-1]) & (rank[1:] == rank[:-1])
        first = int(row.min())
        epochs = np.full(int(row.max()) - first + 1, -1, np.int64)
        known = part["epoch"].fill_null(-1).to_numpy().astype(np.int64)
        np.maximum.at(epochs, row - first, known)
        expected = np.arange(begin - before, begin + len(part) - before)
        regular = np.array_equal(rank * len(self.steps) + row, expected)
        return _PartFacts(first, epochs, row[1:][changes], regular)


def _filled(column: pa.ChunkedArray) -> Ints:
    if column.null_count:
        column = column.cast(pa.int64()).fill_null(NULL)
    return np.asarray(column.to_numpy(), np.int64)

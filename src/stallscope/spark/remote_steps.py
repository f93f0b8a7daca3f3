"""Compute on a run's steps on executors, without loading rows on the driver.

Executors import this: it needs numpy and pyarrow only.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from stallscope.arrays.blocks import NULL
from stallscope.arrays.memory import in_memory
from stallscope.arrays.pivot import Pivoted, RemoteTable, pivot, with_log_numbers
from stallscope.arrays.types import Ints
from stallscope.run import STEPS_SCHEMA

from .each import check_shared, each
from .spark_cells import CellFile, Cluster, SparkMatrix, runs_of, write_cells
from .storage import rows_of

T = TypeVar("T")
#: Rows of a part, about 90 MB, unless one rank has more.
ROWS_OF_A_PART = 2**20


@dataclass(frozen=True)
class SparkTable(RemoteTable):
    """A table of steps in shared Parquet files."""

    cluster: Cluster
    files: tuple[str, ...]
    #: All ranks that may have rows, ascending, and the number of rows.
    ranks: tuple[int, ...]
    rows: int
    #: Filters: only rows of this generation, and no rows of these logs.
    generation: int | None = None
    without: tuple[int, ...] = ()
    #: Per log in the files its number in the table; empty if they are the same.
    numbers: tuple[int, ...] = ()

    @property
    def num_rows(self) -> int:
        return self.rows

    def of_generation(self, generation: int) -> SparkTable:
        return replace(self, generation=generation)

    def as_run_of_generation(self, generation: int, numbers: Ints) -> SparkTable:
        table = replace(self, generation=generation, numbers=tuple(numbers.tolist()))
        return replace(table, rows=sum(table.by_parts((), _count)))

    def without_logs(self, logs: Sequence[int]) -> SparkTable:
        in_files = [self.numbers.index(log) for log in logs] if self.numbers else logs
        return replace(self, without=(*self.without, *in_files))

    def by_parts(self, columns: Sequence[str], kernel: Callable[..., T], *args: Any) -> list[T]:
        results = self._each(_in_part, self._parts(), tuple(columns), kernel, args)
        return [result[0] for result in results if result]

    def pivot(self, names: Sequence[str], sessions: Ints | None) -> Pivoted:
        parts = list(self._parts())
        needed = (*_PIVOTED, "end")
        results = self._each(_in_part, parts, needed, _facts, (sessions,))
        filled = [(part, result[0]) for part, result in zip(parts, results, strict=True) if result]
        of_parts = [part_ranks for _, (part_ranks, _) in filled]
        ranks = tuple(rank for part_ranks in of_parts for rank in part_ranks)
        # Most ranks have the same steps: those of one part stand for all parts that have them.
        facts = [pickle.loads(packed) for packed in {packed for _, (_, packed) in filled}]
        steps = np.unique(
            np.concatenate([part_facts.steps() for part_facts in facts] or [_NO_STEPS])
        )
        epochs = np.full(len(steps), -1, np.int64)
        starts = np.zeros(len(steps), bool)
        starts[:1] = True
        for part_facts in facts:
            at = np.searchsorted(steps, part_facts.steps())
            np.maximum.at(epochs, at, part_facts.epochs())
            starts[at[part_facts.session_starts]] = True
        filled_parts = [part for part, _ in filled]
        before = np.cumsum([0, *map(len, of_parts)])[:-1].tolist()
        numbered = list(zip(filled_parts, before, strict=True))
        files = self._each(_columns, numbered, steps, tuple(names))
        cells = SparkMatrix.of(
            self.cluster,
            {
                name: ("<i8", [file for part_files in files for file in part_files[name]])
                for name in names
            },
            (len(steps), len(ranks)),
        )
        return Pivoted(steps, ranks, epochs, starts, cells)

    def _each(self, function: Callable[..., T], parts: Iterable[Any], *shared: Any) -> list[T]:
        """Run a function for each part. The files are sent once for all parts: both are many."""
        return each(self.cluster.spark, function, list(parts), self._filtered(), *shared)

    def _filtered(self) -> _Rows:
        folder = self.cluster.folder
        return _Rows(folder, self.files, self.generation, self.without, self.numbers)

    def _parts(self) -> Iterator[_Ranks]:
        """Yield the ranks of each part."""
        per_part = max(1, ROWS_OF_A_PART * len(self.ranks) // max(self.rows, 1))
        for start in range(0, len(self.ranks), per_part):
            yield self.ranks[start : start + per_part]


#: Ranks of a part, ascending; it has no rows of others between them.
_Ranks = tuple[int, ...]
_NO_STEPS = np.zeros(0, np.int64)


# The columns that determine a row's place in a matrix.
_PIVOTED = ("log", "rank", "step", "epoch")


@dataclass(frozen=True)
class _Rows:
    """The rows of a table, to read on an executor."""

    #: The folder for temporary files.
    folder: str
    files: tuple[str, ...]
    generation: int | None
    without: tuple[int, ...]
    numbers: tuple[int, ...]

    def of(self, ranks: _Ranks, columns: Sequence[str]) -> pa.Table:
        """Read columns of a part's rows, and the log of each row."""
        check_shared(self.folder)
        rank = pc.field("rank")
        chosen = (rank >= ranks[0]) & (rank <= ranks[-1])
        if self.generation is not None:
            chosen &= pc.field("generation") == self.generation
        if self.without:
            chosen &= ~pc.field("log").isin(list(self.without))
        return rows_by_log(self.files, chosen, self.numbers, list({"log", *columns}))


def rows_by_log(
    files: Sequence[str],
    chosen: ds.Expression | None = None,
    numbers: Sequence[int] = (),
    columns: Sequence[str] | None = None,
) -> pa.Table:
    """Read rows of files, ordered by log.

    Args:
        files: Parquet files.
        chosen: a filter of the rows; None for all.
        numbers: per log in the files its number in the table; empty if they are the same.
        columns: the columns, including the log; None for all.
    """
    rows = rows_of(files, columns, chosen, STEPS_SCHEMA).combine_chunks()
    if numbers:
        rows = with_log_numbers(rows, np.array(numbers))
    log = rows["log"].to_numpy()
    if (np.diff(log) >= 0).all():
        return rows
    # In files by epoch, the rows of a log are not contiguous.
    return rows.take(pa.array(np.argsort(log, kind="stable"))).combine_chunks()


@dataclass(frozen=True)
class _Facts:
    """Facts about the steps of a part, in few bytes."""

    #: k × 2: ranges of consecutive steps.
    runs: Ints
    #: The positions at which another epoch starts, and these epochs.
    epoch_starts: Ints
    epoch_numbers: Ints
    #: Positions of the steps that start later sessions of a rank.
    session_starts: Ints

    @classmethod
    def of(cls, pivoted: Pivoted) -> _Facts:
        epochs = pivoted.epochs
        changes = np.flatnonzero(np.append(True, epochs[1:] != epochs[:-1])[: len(epochs)])
        # Whether the first step of this part starts a session depends on other parts.
        session_starts = np.flatnonzero(pivoted.session_start[1:]) + 1
        return cls(runs_of(pivoted.steps), changes, epochs[changes], session_starts)

    def steps(self) -> Ints:
        """Return the steps, ascending."""
        return np.concatenate([_NO_STEPS, *(np.arange(low, high) for low, high in self.runs)])

    def epochs(self) -> Ints:
        """Return the epoch of each step."""
        count = int((self.runs[:, 1] - self.runs[:, 0]).sum())
        return np.repeat(self.epoch_numbers, np.diff(self.epoch_starts, append=count))


def _count(rows: pa.Table) -> int:
    """Kernel: count the rows."""
    return int(rows.num_rows)


def _in_part(
    part: _Ranks,
    table: _Rows,
    columns: tuple[str, ...],
    kernel: Callable[..., T],
    args: tuple[Any, ...],
) -> tuple[T, ...]:
    """Run a kernel on a part, on an executor; return nothing for a part without rows."""
    rows = table.of(part, columns)
    return (kernel(rows, *args),) if rows.num_rows else ()


def _facts(rows: pa.Table, sessions: Ints | None) -> tuple[_Ranks, bytes]:
    """Kernel: return the ranks, and the packed facts of their steps, which others may have as well."""
    pivoted = pivot(rows, ("end",), in_memory, sessions)
    return pivoted.ranks, pickle.dumps(_Facts.of(pivoted), pickle.HIGHEST_PROTOCOL)


def _columns(
    part: tuple[_Ranks, int], table: _Rows, steps: Ints, names: tuple[str, ...]
) -> dict[str, tuple[CellFile, ...]]:
    """Write columns of a part's ranks, aligned with all steps, into files, on an executor."""
    rows, before = table.of(part[0], (*_PIVOTED, *names)), part[1]
    pivoted = pivot(rows, names, in_memory)
    at = np.searchsorted(steps, pivoted.steps)
    files = {}
    for name in names:
        whole = np.full((len(steps), len(pivoted.ranks)), NULL, np.int64)
        whole[at] = pivoted.cells.whole(name)
        # Kernels read these files in blocks of steps.
        files[name] = write_cells(whole, table.folder, 0, before, rank_by_rank=False)
    return files

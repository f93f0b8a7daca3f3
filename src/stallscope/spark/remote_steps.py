"""Compute on a run's steps on executors, without loading rows on the driver.

Executors import this: it needs numpy and pyarrow only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
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
from .spark_cells import CellFile, Cluster, SparkMatrix, write_cells
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
        results = each(
            self.cluster.spark, _in_part, list(self._parts()), tuple(columns), kernel, args
        )
        return [result[0] for result in results if result]

    def pivot(self, names: Sequence[str], sessions: Ints | None) -> Pivoted:
        parts = list(self._parts())
        needed = (*_PIVOTED, "end")
        results = each(self.cluster.spark, _in_part, parts, needed, _facts, (sessions,))
        filled = [(part, result[0]) for part, result in zip(parts, results, strict=True) if result]
        facts = [part_facts for _, part_facts in filled]
        steps = np.unique(np.concatenate([part_facts.steps for part_facts in facts] or [_NO_STEPS]))
        ranks = tuple(rank for part_facts in facts for rank in part_facts.ranks)
        epochs = np.full(len(steps), -1, np.int64)
        starts = np.zeros(len(steps), bool)
        starts[:1] = True
        for part_facts in facts:
            at = np.searchsorted(steps, part_facts.steps)
            np.maximum.at(epochs, at, part_facts.epochs)
            starts[at[part_facts.session_starts]] = True
        filled_parts = [part for part, _ in filled]
        before = np.cumsum([0, *(len(part_facts.ranks) for part_facts in facts)])[:-1].tolist()
        numbered = list(zip(filled_parts, before, strict=True))
        files = each(
            self.cluster.spark, _columns, numbered, steps, tuple(names), self.cluster.folder
        )
        cells = SparkMatrix.of(
            self.cluster,
            {
                name: ("<i8", [file for part_files in files for file in part_files[name]])
                for name in names
            },
            (len(steps), len(ranks)),
        )
        return Pivoted(steps, ranks, epochs, starts, cells)

    def _parts(self) -> Iterator[_Part]:
        per_part = max(1, ROWS_OF_A_PART * len(self.ranks) // max(self.rows, 1))
        for start in range(0, len(self.ranks), per_part):
            part_ranks = self.ranks[start : start + per_part]
            folder = self.cluster.folder
            yield _Part(folder, self.files, part_ranks, self.generation, self.without, self.numbers)


_NO_STEPS = np.zeros(0, np.int64)


# The columns that determine a row's place in a matrix.
_PIVOTED = ("log", "rank", "step", "epoch")


@dataclass(frozen=True)
class _Part:
    """The rows of some ranks, to read on an executor."""

    #: The folder for temporary files.
    folder: str
    files: tuple[str, ...]
    ranks: tuple[int, ...]
    generation: int | None
    without: tuple[int, ...]
    numbers: tuple[int, ...]

    def read(self, columns: Sequence[str]) -> pa.Table:
        """Read columns of the rows, and the log of each row."""
        check_shared(self.folder)
        rank = pc.field("rank")
        chosen = (rank >= self.ranks[0]) & (rank <= self.ranks[-1])
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
    """Facts about the steps of a part."""

    steps: Ints
    ranks: tuple[int, ...]
    epochs: Ints
    #: Positions of the steps that start later sessions of a rank.
    session_starts: Ints


def _count(rows: pa.Table) -> int:
    """Kernel: count the rows."""
    return int(rows.num_rows)


def _in_part(
    part: _Part, columns: tuple[str, ...], kernel: Callable[..., T], args: tuple[Any, ...]
) -> tuple[T, ...]:
    """Run a kernel on a part, on an executor; return nothing for a part without rows."""
    rows = part.read(columns)
    return (kernel(rows, *args),) if rows.num_rows else ()


def _facts(rows: pa.Table, sessions: Ints | None) -> _Facts:
    pivoted = pivot(rows, ("end",), in_memory, sessions)
    # Whether the first step of this part starts a session depends on other parts.
    session_starts = np.flatnonzero(pivoted.session_start[1:]) + 1
    return _Facts(pivoted.steps, pivoted.ranks, pivoted.epochs, session_starts)


def _columns(
    part: tuple[_Part, int], steps: Ints, names: tuple[str, ...], folder: str
) -> dict[str, tuple[CellFile, ...]]:
    """Write columns of a part's ranks, aligned with all steps, into files, on an executor."""
    rows, before = part[0].read((*_PIVOTED, *names)), part[1]
    pivoted = pivot(rows, names, in_memory)
    at = np.searchsorted(steps, pivoted.steps)
    files = {}
    for name in names:
        whole = np.full((len(steps), len(pivoted.ranks)), NULL, np.int64)
        whole[at] = pivoted.cells.whole(name)
        # Kernels read these files in blocks of steps.
        files[name] = write_cells(whole, folder, 0, before, rank_by_rank=False)
    return files

"""Steps of collected runs, read back from files of Parquet: some row groups at a time, on all cores."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from stallscope.arrays.memory import allocator_for
from stallscope.run import STEPS_SCHEMA

from .table_builder import Together

# What one thread decodes at a time fits into its cache, and what it takes on at once is worth a thread.
_ROWS_AT_A_TIME = 2**16
_ROWS_PER_TASK = 2**18


def read_steps(
    paths: Sequence[Path],
    ranks: Sequence[int] | None = None,
    epochs: Sequence[int] | None = None,
) -> pa.Table:
    """The steps in some files, in their order, as one table.

    Args:
        paths: the files.
        ranks: only the steps of these.
        epochs: only the steps of these.

    Raises:
        OSError, ValueError, pa.ArrowException: if a file cannot be read.
    """
    wanted = _Wanted({"rank": ranks, "epoch": epochs})
    files = [_File.of(path) for path in paths]
    found = [group for file in files for group in file.groups(wanted)]
    rows = sum(group.rows for group in found)
    whole = Together(STEPS_SCHEMA, rows, allocator_for(rows))
    tasks = list(_tasks(found))
    if len(tasks) < 2:
        for task in tasks:
            task.read(whole, wanted)
    else:
        with ThreadPoolExecutor(pa.cpu_count()) as pool:
            list(pool.map(lambda task: task.read(whole, wanted), tasks))
    return whole.table()


class _Wanted:
    """Which rows are wanted, by the values of some columns."""

    def __init__(self, values: dict[str, Sequence[int] | None]) -> None:
        kinds = {name: STEPS_SCHEMA.field(name).type for name in values}
        self._values = {
            name: pa.array(list(own), kinds[name])
            for name, own in values.items()
            if own is not None
        }

    @property
    def columns(self) -> list[str]:
        return list(self._values)

    def all_or_none(self, same: dict[str, int | None]) -> bool | None:
        """Whether rows are wanted whose columns are the same in all of them; None where that depends."""
        told = [self._has(name, same[name]) for name in self._values if name in same]
        if not all(told):
            return False
        return True if len(told) == len(self._values) else None

    def _has(self, name: str, value: int | None) -> bool:
        return value in self._values[name].to_pylist()

    def of(self, batch: pa.RecordBatch) -> pa.Array:
        """Per row whether it is wanted."""
        chosen = pa.scalar(True)
        for name, values in self._values.items():
            chosen = pc.and_(chosen, pc.is_in(batch[name], values))
        return chosen


@dataclass(frozen=True)
class _File:
    path: Path
    metadata: pq.FileMetaData
    #: Of the columns that it has, in its order.
    names: list[str]

    @classmethod
    def of(cls, path: Path) -> _File:
        metadata = pq.read_metadata(path)
        return cls(path, metadata, metadata.schema.names)

    def groups(self, wanted: _Wanted) -> Iterator[_Group]:
        """Row groups that have rows which are wanted."""
        for number in range(self.metadata.num_row_groups):
            same = self._same(number)
            whole = wanted.all_or_none(same)
            if whole is None:
                rows = self._count(number, wanted)
            else:
                rows = self.metadata.row_group(number).num_rows if whole else 0
            if rows:
                yield _Group(self, number, rows, bool(whole), same)

    def batches(self, groups: Sequence[int], names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Some columns of row groups."""
        with pq.ParquetFile(self.path, metadata=self.metadata) as file:
            yield from file.iter_batches(
                _ROWS_AT_A_TIME, row_groups=list(groups), columns=list(names), use_threads=False
            )

    def _same(self, number: int) -> dict[str, int | None]:
        """Columns of which a row group has one value only, as its statistics tell: with this value."""
        # A file that was written before a column was known knows nothing of it.
        same = dict.fromkeys(set(STEPS_SCHEMA.names) - set(self.names))
        group = self.metadata.row_group(number)
        for index, name in enumerate(self.names):
            column = group.column(index)
            known = column.statistics
            if known is None or not known.has_null_count:
                continue
            if known.null_count == column.num_values:
                same[name] = None
            elif known.has_min_max and not known.null_count and known.min == known.max:
                same[name] = known.min
        return same

    def _count(self, number: int, wanted: _Wanted) -> int:
        batches = self.batches([number], wanted.columns)
        return sum(wanted.of(batch).true_count for batch in batches)


@dataclass(frozen=True)
class _Group:
    file: _File
    number: int
    #: That are wanted, and whether these are all.
    rows: int
    whole: bool
    same: dict[str, int | None]


@dataclass
class _Task:
    """Row groups of one file that follow each other, for one thread."""

    #: The row of the table with which they begin.
    at: int
    groups: list[_Group] = field(default_factory=list)

    @property
    def rows(self) -> int:
        return sum(group.rows for group in self.groups)

    def takes(self, group: _Group) -> bool:
        last = self.groups[-1]
        alike = group.file is last.file and group.whole and last.whole
        return alike and self.rows + group.rows <= _ROWS_PER_TASK

    def read(self, whole: Together, wanted: _Wanted) -> None:
        """Put the rows into their places."""
        alike = set.intersection(*(set(group.same) for group in self.groups))
        at = self.at
        for group in self.groups:
            for name in alike:
                whole.fill(name, at, group.rows, group.same[name])
            at += group.rows
        names = [name for name in STEPS_SCHEMA.names if name not in alike]
        all_rows = all(group.whole for group in self.groups)
        needed = names if all_rows else list(dict.fromkeys([*names, *wanted.columns]))
        file, at = self.groups[0].file, self.at
        for batch in file.batches([group.number for group in self.groups], needed) if names else ():
            own = batch if all_rows else batch.filter(wanted.of(batch))
            for name in names:
                whole.put(name, at, own[name])
            at += len(own)


def _tasks(groups: Sequence[_Group]) -> Iterator[_Task]:
    task, at = None, 0
    for group in groups:
        if task is None or not task.takes(group):
            if task is not None:
                yield task
            task = _Task(at)
        task.groups.append(group)
        at += group.rows
    if task is not None:
        yield task

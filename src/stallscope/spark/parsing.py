"""Logs that executors read: rows stay on the storage that all see, what is told of them comes back."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from stallscope.collector.sources.base import SourceFile
from stallscope.errors import NotFoundError, UnreadableError
from stallscope.parsers.base import Parsed
from stallscope.parsers.encoding import in_utf8
from stallscope.parsers.named import by_name
from stallscope.parsers.packed import unpacked, unpacked_whole
from stallscope.parsers.reading import Reading
from stallscope.run import STEPS_SCHEMA

from .each import check_shared, each
from .storage import new_file

_ROWS_SCHEMA = pa.schema(list(STEPS_SCHEMA)[1:])
# Spark takes some hundredths of a second for a task, and a parser a second for this.
_BYTES_PER_TASK = 64 << 20
_FILES_PER_TASK = 64


@dataclass(frozen=True)
class Fragment:
    """The rows of one log in files that all machines see."""

    paths: tuple[str, ...]
    rows: int
    #: When the last step ended, and the range of its steps; None where it has none.
    end: int | None = None
    steps: tuple[int, int] | None = None
    #: Which log of these files it is, where they have several.
    log: int | None = None


@dataclass(frozen=True)
class Away(Parsed):
    """A log whose rows are elsewhere: ``steps`` has one that stands for them (see ``stand_in``)."""

    fragment: Fragment = field(default=Fragment((), 0))

    @property
    def rows(self) -> int:
        return self.fragment.rows


def stand_in(fragments: Sequence[tuple[int, Fragment]]) -> pa.Table:
    """One row for each fragment's rows, as a table of steps: it goes through grouping and merging as
    they would, and tells afterwards which log has become which. ``step`` is the fragment's number.
    """
    filled = [(number, one) for number, one in fragments if one.rows]
    columns = {
        "step": [number for number, _ in filled],
        "end": [one.end for _, one in filled],
        "rank": [0] * len(filled),
        "generation": [0] * len(filled),
    }
    nothing = [None] * len(filled)
    return pa.table({name: columns.get(name, nothing) for name in _ROWS_SCHEMA.names}, _ROWS_SCHEMA)


@dataclass
class FarReads:
    """Reads files on executors.

    Args:
        spark: the session.
        read_as: the parser that is to read every file, if one is.
        folder: where rows are put until they are arranged, or a URL; driver and executors see it.
    """

    spark: Any
    read_as: str | None
    folder: str
    #: By number.
    fragments: list[Fragment] = field(default_factory=list)
    _printed: list[_Looked] = field(default_factory=list)

    def read(self, reading: Reading, files: Sequence[SourceFile], *, local: bool) -> None:
        shipped = [_shipped(file, local) for file in files]
        tasks = [
            _Task(chosen, [shipped[number] for number in chosen], self.read_as, self.folder)
            for chosen in _tasks(files)
        ]
        found = {number: one for task in each(self.spark, _read, tasks) for number, one in task}
        for number in range(len(files)):
            looked = found[number]
            reading.add(self._numbered(looked.reading))
            if looked.coarse:
                self._printed.append(replace(looked, file=shipped[number]))

    def records_logs(self, reading: Reading) -> list[Parsed]:
        """The step logs whose records were found; those whose records may lie in the same files are
        put together by one task.
        """
        tasks = [_Task([0], files, None, self.folder) for files in _together(self._printed)]
        found = [self._numbered(one) for one in each(self.spark, _read_records, tasks)]
        for one in found:
            reading.problems += one.problems
            reading.failures += one.failures
        return [parsed for one in found for parsed in one.parsed]

    def _numbered(self, reading: Reading) -> Reading:
        reading.parsed = [self._number(one) for one in reading.parsed]
        return reading

    def _number(self, one: Parsed) -> Parsed:
        assert isinstance(one, Away)
        self.fragments.append(one.fragment)
        return replace(one, steps=stand_in([(len(self.fragments) - 1, one.fragment)]))


@dataclass(frozen=True)
class _Task:
    """Some files that one task reads, with their numbers."""

    numbers: list[int]
    files: list[SourceFile]
    read_as: str | None
    folder: str


@dataclass(frozen=True)
class _Looked:
    """What was found in one file."""

    reading: Reading
    #: Whether it is no log of steps, so that it was looked through for records of such logs.
    coarse: bool
    #: The logs whose records were found.
    records: frozenset[tuple[str, str]]
    file: SourceFile | None = None


def _shipped(file: SourceFile, local: bool) -> SourceFile:
    """A file that executors can read: those of a folder that all see need nothing that opens places."""
    if local and Path(file.where).is_file():
        return replace(file, read_range=partial(_bytes_of, file.where))
    return file


def _bytes_of(path: str, start: int, end: int | None) -> bytes:
    with Path(path).open("rb") as file:
        file.seek(start)
        return file.read() if end is None else file.read(end - start)


def _tasks(files: Sequence[SourceFile]) -> Iterator[list[int]]:
    """Which files each task reads: large ones first, so that they are not last."""
    task: list[int] = []
    size = 0
    for number in sorted(range(len(files)), key=lambda number: -files[number].size):
        if task and (size + files[number].size > _BYTES_PER_TASK or len(task) >= _FILES_PER_TASK):
            yield task
            task, size = [], 0
        task.append(number)
        size += files[number].size
    if task:
        yield task


def _together(printed: Sequence[_Looked]) -> list[list[SourceFile]]:
    """Files with records that have to be put together: rolled ones of a folder, and those of one log."""
    group_of: dict[str, set[str]] = {}
    for log_folders in _folders_of_logs(printed).values():
        # Folders that were joined before are joined with these.
        joined = set().union(*(group_of.get(folder, {folder}) for folder in log_folders))
        group_of.update(dict.fromkeys(joined, joined))
    groups: dict[int, list[SourceFile]] = defaultdict(list)
    for looked in printed:
        assert looked.file is not None
        if _folder(looked.file) in group_of:
            groups[id(group_of[_folder(looked.file)])].append(looked.file)
    return list(groups.values())


def _folders_of_logs(printed: Iterable[_Looked]) -> dict[tuple[str, str], set[str]]:
    folders: dict[tuple[str, str], set[str]] = defaultdict(set)
    for looked in printed:
        assert looked.file is not None
        for log in looked.records:
            folders[log].add(_folder(looked.file))
    return folders


def _folder(file: SourceFile) -> str:
    return file.name.rpartition("/")[0]


def _read(task: _Task) -> list[tuple[int, _Looked]]:
    """On an executor: the logs in some files."""
    check_shared(task.folder)
    return [
        (number, _looked_into(file, task))
        for number, file in zip(task.numbers, task.files, strict=True)
    ]


def _looked_into(file: SourceFile, task: _Task) -> _Looked:
    reading = Reading(by_name(task.read_as) if task.read_as else None)
    records: set[tuple[str, str]] = set()
    try:
        whole = unpacked_whole(file.where, file.read())
        parsed = reading.ahead(file.name, whole.data)
        taken = reading.take(file.name, file.where, whole.data, parsed)
        if whole.broke_off:
            reading.broke_off(file.name)
        if taken.kind == "records":
            # Also where none of them is whole: the rest is in another file of the folder.
            records = {*reading.records.pieces, ("", _folder(file))}
    except (UnreadableError, NotFoundError) as error:
        reading.failed(file.name, error)
    return _Looked(_small(reading, task.folder), reading.records.looked, frozenset(records))


def _read_records(task: _Task) -> Reading:
    """On an executor: the logs whose records are in some files."""
    check_shared(task.folder)
    reading = Reading()
    for file in task.files:
        reading.records.add(file.name, in_utf8(unpacked(file.where, file.read())))
    reading.parsed = reading.records_logs()
    return _small(reading, task.folder)


def _small(reading: Reading, folder: str) -> Reading:
    """What was read without the rows of logs, which are put away."""
    small = Reading()
    small.add(reading)
    small.parsed = [_put_away(one, folder) for one in reading.parsed]
    return small


def _put_away(one: Parsed, folder: str) -> Away:
    """Write a log's rows under a name that no other attempt of the task uses."""
    rows = one.steps.num_rows
    path = f"{folder}/{uuid.uuid4().hex}.parquet"
    fragment = Fragment((), 0)
    if rows:
        with new_file(path) as file:
            pq.write_table(one.steps, file)
        low_high = pc.min_max(one.steps["step"]).as_py()
        end = pc.max(one.steps["end"]).as_py()
        fragment = Fragment((path,), rows, end, (low_high["min"], low_high["max"]))
    nothing = _ROWS_SCHEMA.empty_table()
    return Away(one.log, one.run_id, nothing, one.intervals, one.problems, fragment=fragment)

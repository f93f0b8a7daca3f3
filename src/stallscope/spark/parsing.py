"""Read logs on executors: rows stay on shared storage, and the driver gets their metadata."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from stallscope.arrays.types import Ints
from stallscope.collector.sources.source import SourceFile
from stallscope.collector.store.generations import NOTHING_COMPLETED, some_completions_of
from stallscope.errors import NotFoundError, UnreadableError
from stallscope.parsers.base import STEP_ROWS, Parsed
from stallscope.parsers.files.unpacking import plain_text, unpacked_whole
from stallscope.parsers.formats.step_log.step_log_parser import LogRecordsFormat
from stallscope.parsers.lines.timestamps import written_at
from stallscope.parsers.reader import last_changed_ns, read_file
from stallscope.parsers.registry import by_name
from stallscope.parsers.runs.reading import Reading

from .each import check_shared, each
from .storage import new_file

# A parser takes a second for this many bytes; Spark takes some hundredths of a second per task.
_BYTES_PER_TASK = 64 << 20
_FILES_PER_TASK = 64


@dataclass(frozen=True)
class Fragment:
    """The rows of one log in shared files."""

    paths: tuple[str, ...]
    rows: int
    #: The end of the last step, and the range of steps; None without steps.
    end: int | None = None
    steps: tuple[int, int] | None = None
    #: The number of the log, if the files have several.
    log: int | None = None
    #: Some steps and their completions; None where the log was collected earlier.
    completions: tuple[Ints, Ints] | None = None


@dataclass(frozen=True)
class RemoteLog(Parsed):
    """A log with rows on shared storage: ``steps`` has one row for all of them (see ``stand_in``)."""

    fragment: Fragment = field(default=Fragment((), 0))

    @property
    def rows(self) -> int:
        return self.fragment.rows

    @property
    def step_range(self) -> tuple[int, int] | None:
        return self.fragment.steps

    @property
    def last_end(self) -> int | None:
        return self.fragment.end

    def completions(self) -> tuple[Ints, Ints]:
        return self.fragment.completions or NOTHING_COMPLETED


def stand_in(fragments: Sequence[tuple[int, Fragment]]) -> pa.Table:
    """Return a table of steps with one row per fragment; ``step`` is the fragment's number.

    Grouping and merging treat this row like the fragment's rows. Afterwards it has the log's new number.
    """
    with_rows = [(number, fragment) for number, fragment in fragments if fragment.rows]
    columns = {
        "step": [number for number, _ in with_rows],
        "end": [fragment.end for _, fragment in with_rows],
        "rank": [0] * len(with_rows),
        "generation": [0] * len(with_rows),
    }
    empty = [None] * len(with_rows)
    return pa.table({name: columns.get(name, empty) for name in STEP_ROWS.names}, STEP_ROWS)


@dataclass
class RemoteReader:
    """Reads files on executors.

    Args:
        spark: the session.
        read_as: the parser for every file, if the user names one.
        folder: a shared folder or a URL for rows until they are arranged.
    """

    spark: Any
    read_as: str | None
    folder: str
    #: The fragments by number.
    fragments: list[Fragment] = field(default_factory=list)
    _printed: list[_FileResult] = field(default_factory=list)

    def read(self, reading: Reading, files: Sequence[SourceFile], *, local: bool) -> None:
        portable = [_portable(file, local) for file in files]
        tasks = [
            _Task(numbers, [portable[number] for number in numbers], self.read_as, self.folder)
            for numbers in _tasks(files)
        ]
        results = {
            number: result for task in each(self.spark, _read, tasks) for number, result in task
        }
        for number in range(len(files)):
            result = results[number]
            reading.merge(self._number_all(result.reading))
            if result.searched:
                self._printed.append(replace(result, file=portable[number]))

    def records_logs(self, reading: Reading) -> list[Parsed]:
        """Return the step logs of the records that were found.

        One task assembles logs with records in the same files.
        """
        tasks = [_Task([0], files, None, self.folder) for files in _groups(self._printed)]
        parts = [self._number_all(part) for part in each(self.spark, _read_records, tasks)]
        for part in parts:
            reading.problems += part.problems
            reading.failures += part.failures
        return [parsed for part in parts for parsed in part.parsed]

    def _number_all(self, reading: Reading) -> Reading:
        reading.parsed = [self._number(parsed) for parsed in reading.parsed]
        return reading

    def _number(self, parsed: Parsed) -> Parsed:
        assert isinstance(parsed, RemoteLog)
        self.fragments.append(parsed.fragment)
        return replace(parsed, steps=stand_in([(len(self.fragments) - 1, parsed.fragment)]))


@dataclass(frozen=True)
class _Task:
    """The files of one task, with their numbers."""

    numbers: list[int]
    files: list[SourceFile]
    read_as: str | None
    folder: str


@dataclass(frozen=True)
class _FileResult:
    """The result of reading one file."""

    reading: Reading
    #: Whether the file was searched for records of step logs, because it is no step log.
    searched: bool
    #: The logs with records in the file.
    records: frozenset[tuple[str, str]]
    file: SourceFile | None = None


def _portable(file: SourceFile, local: bool) -> SourceFile:
    """Return a file that executors can read; for shared folders, without importing sources."""
    if local and Path(file.where).is_file():
        return replace(file, read_range=partial(_bytes_of, file.where))
    return file


def _bytes_of(path: str, start: int, end: int | None) -> bytes:
    with Path(path).open("rb") as file:
        file.seek(start)
        return file.read() if end is None else file.read(end - start)


def _tasks(files: Sequence[SourceFile]) -> Iterator[list[int]]:
    """Distribute files to tasks, large ones first, so that they do not finish last."""
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


def _groups(printed: Sequence[_FileResult]) -> list[list[SourceFile]]:
    """Group files that have records of the same logs: files of a folder, and files of one log."""
    group_of: dict[str, set[str]] = {}
    for log_folders in _folders_of_logs(printed).values():
        # Merge with folders of earlier groups.
        merged_folders = set().union(*(group_of.get(folder, {folder}) for folder in log_folders))
        group_of.update(dict.fromkeys(merged_folders, merged_folders))
    groups: dict[int, list[SourceFile]] = defaultdict(list)
    for result in printed:
        assert result.file is not None
        if _folder(result.file) in group_of:
            groups[id(group_of[_folder(result.file)])].append(result.file)
    return list(groups.values())


def _folders_of_logs(printed: Iterable[_FileResult]) -> dict[tuple[str, str], set[str]]:
    folders: dict[tuple[str, str], set[str]] = defaultdict(set)
    for result in printed:
        assert result.file is not None
        for log in result.records:
            folders[log].add(_folder(result.file))
    return folders


def _folder(file: SourceFile) -> str:
    return file.name.rpartition("/")[0]


def _read(task: _Task) -> list[tuple[int, _FileResult]]:
    """Read the logs in some files, on an executor."""
    check_shared(task.folder)
    return [
        (number, _read_file(file, task))
        for number, file in zip(task.numbers, task.files, strict=True)
    ]


def _read_file(file: SourceFile, task: _Task) -> _FileResult:
    reading = Reading(by_name(task.read_as) if task.read_as else None)
    records: set[tuple[str, str]] = set()
    try:
        whole, contents = read_file(reading, file)
        with written_at(last_changed_ns(file, local=Path(file.where).is_file())):
            identified = reading.add_file(file.name, file.where, whole.data, contents)
        if whole.truncated:
            reading.truncated(file.name)
        if isinstance(identified.format, LogRecordsFormat):
            # A record may be incomplete, with the rest in another file of the folder.
            records = {*reading.records.pieces, ("", _folder(file))}
    except (UnreadableError, NotFoundError) as error:
        reading.failed(file.name, error, file.where)
    return _FileResult(
        _without_rows(reading, task.folder), reading.records.looked, frozenset(records)
    )


def _read_records(task: _Task) -> Reading:
    """Assemble the logs of the records in some files, on an executor."""
    check_shared(task.folder)
    reading = Reading()
    for file in task.files:
        reading.records.add(file.name, plain_text(unpacked_whole(file.where, file.read()).data))
    reading.parsed = reading.records_logs()
    return _without_rows(reading, task.folder)


def _without_rows(reading: Reading, folder: str) -> Reading:
    """Store the rows of logs, and return the reading without them."""
    copy = Reading()
    copy.merge(reading)
    copy.parsed = [_store_rows(parsed, folder) for parsed in reading.parsed]
    return copy


def _store_rows(parsed: Parsed, folder: str) -> RemoteLog:
    """Write a log's rows into a file with a unique name."""
    rows = parsed.steps.num_rows
    path = f"{folder}/{uuid.uuid4().hex}.parquet"
    fragment = Fragment((), 0)
    if rows:
        with new_file(path) as file:
            pq.write_table(parsed.steps, file)
        completions = some_completions_of(parsed.steps)
        fragment = Fragment(
            (path,), rows, parsed.last_end, parsed.step_range, completions=completions
        )
    empty = STEP_ROWS.empty_table()
    return RemoteLog(
        parsed.log, parsed.run_id, empty, parsed.intervals, parsed.problems, fragment=fragment
    )

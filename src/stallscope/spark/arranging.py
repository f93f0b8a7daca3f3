"""Arrange the steps of collected runs on executors: sorted by log, in files of many logs."""

from __future__ import annotations

import hashlib
import io
import uuid
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stallscope.arrays.types import Ints
from stallscope.collector.store.generations import (
    NOTHING_COMPLETED,
    Completions,
    some_completions_of,
    with_generations,
)
from stallscope.collector.store.merge import last_attempts, repeat_problems
from stallscope.collector.store.step_files import write_rows
from stallscope.run import STEPS_SCHEMA, Log, Run

from .each import each
from .parsing import Fragment, stand_in
from .storage import is_url, metadata_of, new_file, rows_of

if TYPE_CHECKING:
    # Executors import this module, and do not need the packages of stores.
    from stallscope.collector.store.run_folders import WrittenSteps

# The rows of a file, which one task writes, and the most files of a run.
_ROWS_PER_FILE = 1 << 20
_MOST_FILES = 1024


@dataclass
class RemoteSteps:
    """Reads and writes steps on executors; on the driver, tables of steps have stand-ins for fragments.

    Args:
        spark: the session.
        folder: a shared folder or a URL that executors write to.
        fragments: the fragments by number; ``load`` adds those of collected runs.
    """

    spark: Any
    folder: str
    fragments: list[Fragment]
    _new: int = field(init=False)

    def __post_init__(self) -> None:
        self._new = len(self.fragments)

    def load(self, folder: Path) -> Run:
        from stallscope.collector.store.loading import load_run

        old, files = load_run(folder, with_steps=False), steps_of(folder)
        first_number = len(self.fragments)
        rows = _rows_of_logs(files, len(old.logs))
        # A log without rows also has a stand-in, which counts as a row.
        self.fragments += [
            Fragment(files, max(1, rows[log]), log=log) for log in range(len(old.logs))
        ]
        numbered = [
            (first_number + log, self.fragments[first_number + log]) for log in range(len(old.logs))
        ]
        steps = stand_in(numbered).add_column(
            0, "log", pa.array(np.arange(len(old.logs), dtype=np.int32))
        )
        return replace(old, steps=steps.cast(STEPS_SCHEMA))

    def completions(self, steps: pa.Table, logs: int) -> Completions:
        """Return some completions of each log; executors read those of collected logs."""
        numbers = _fragment_numbers(steps)

        @cache
        def of_collected() -> dict[int, tuple[Ints, Ints]]:
            lacking = [n for n in numbers.values() if self.fragments[n].completions is None]
            tasks = [self.fragments[number] for number in lacking]
            return dict(zip(lacking, each(self.spark, _completions, tasks), strict=True))

        def completions(log: int) -> tuple[Ints, Ints]:
            if log not in numbers:
                return NOTHING_COMPLETED
            known = self.fragments[numbers[log]].completions
            return of_collected()[numbers[log]] if known is None else known

        return completions

    def write(self, run: Run, folder: Path, place: Path) -> WrittenSteps:
        from stallscope.collector.store.layout import address
        from stallscope.collector.store.manifests import ListedFile
        from stallscope.collector.store.run_folders import WrittenSteps, list_files

        # Files at a URL cannot be renamed, so executors write to the final place.
        url = address(place) if is_url(address(place)) else None
        noted, written_files = self.arrange(run, None if url is None else f"{url}/steps")
        (folder / "steps").mkdir()
        if not written_files:
            write_rows(STEPS_SCHEMA.empty_table(), folder / "steps" / "logs-000000-000000.parquet")
            return WrittenSteps(noted, 0, list_files(folder, "steps/*.parquet"))
        files = {}
        for file in written_files:
            # A task may have run more than once, but only one of its files counts.
            name = f"steps/{file.name}"
            if url is None:
                name = f"steps/{_name(file.logs)}.parquet"
                Path(file.path).rename(folder / name)
            files[name] = ListedFile(file.size, file.sha256)
        return WrittenSteps(noted, sum(file.rows for file in written_files), files)

    def arrange(self, run: Run, folder: str | None = None) -> tuple[Run, list[WrittenFile]]:
        """Write the rows of a run into files of many logs, in the order of logs.

        Args:
            folder: the folder for these files; None: the temporary folder.

        Returns:
            The run with the problems that were found, and the files.
        """
        numbers = _fragment_numbers(run.steps)
        tasks = [
            _Task(pieces, folder or self.folder) for pieces in _files(self._plan(run, numbers))
        ]
        files = each(self.spark, _arrange, tasks)
        return _with_problems(run, files), files

    def _plan(self, run: Run, numbers: dict[int, int]) -> list[_Piece]:
        """Plan the rows of each log, in the order of logs."""
        by_rank: dict[tuple[int, int], list[int]] = defaultdict(list)
        for log in sorted(numbers):
            by_rank[_rank_key(run.logs[log])].append(log)
        pieces = []
        for log, number in sorted(numbers.items()):
            fragment = self.fragments[number]
            same_rank = by_rank[_rank_key(run.logs[log])]
            later = [numbers[rank_log] for rank_log in same_rank if rank_log > log]
            # Later logs, of this collection or an earlier one, may have recorded the same steps again.
            same_collection = [
                self.fragments[n] for n in later if n < self._new and number < self._new
            ]
            all_later = [self.fragments[n] for n in later]
            pieces.append(
                _Piece(
                    log,
                    run.logs[log].rank,
                    run.logs[log].generation,
                    fragment,
                    tuple(
                        candidate
                        for candidate in same_collection
                        if _may_overlap(fragment, candidate)
                    ),
                    tuple(
                        candidate for candidate in all_later if _may_overlap(fragment, candidate)
                    ),
                )
            )
        return pieces


@dataclass(frozen=True)
class _Piece:
    """A log's rows, and later logs that may have recorded the same steps again."""

    log: int
    rank: int
    #: The number of the log's generation; the rows have the number that the process counted.
    generation: int
    fragment: Fragment
    #: Later logs of the same collection, and all later logs.
    later_here: tuple[Fragment, ...]
    later: tuple[Fragment, ...]


@dataclass(frozen=True)
class _Task:
    """The logs of one file."""

    pieces: list[_Piece]
    folder: str


@dataclass(frozen=True)
class WrittenFile:
    """A file that an executor has written."""

    path: str
    #: The numbers of its first and last log.
    logs: tuple[int, int]
    rows: int
    size: int
    sha256: str
    #: The number of steps that a later log of the same collection repeats, by rank.
    repeated: dict[int, int]

    @property
    def name(self) -> str:
        """Return the last part of the path, which is unique."""
        return self.path.rpartition("/")[2]


def steps_of(folder: Path) -> tuple[str, ...]:
    """Return the files with a collected run's rows, in the order of logs."""
    from stallscope.collector.store.layout import address
    from stallscope.collector.store.loading import STEPS, names_of
    from stallscope.collector.store.manifests import read_manifest

    names = sorted(names_of(read_manifest(folder).files, STEPS))
    return tuple(f"{address(folder)}/{name}" for name in names)


def _fragment_numbers(steps: pa.Table) -> dict[int, int]:
    """Return the number of each log's fragment, from a table of stand-ins."""
    return dict(zip(steps["log"].to_pylist(), steps["step"].to_pylist(), strict=True))


def _rank_key(log: Log) -> tuple[int, int]:
    return log.rank, log.generation


def _may_overlap(first: Fragment, second: Fragment) -> bool:
    if first.steps is None or second.steps is None:
        return True
    return first.steps[0] <= second.steps[1] and second.steps[0] <= first.steps[1]


def _rows_of_logs(files: Sequence[str], logs: int) -> list[int]:
    """Estimate the number of rows of each log from the metadata of row groups.

    Logs that share a row group count equally.
    """
    rows = [0] * logs
    column = STEPS_SCHEMA.get_field_index("log")
    for metadata in metadata_of(files):
        for number in range(metadata.num_row_groups):
            group = metadata.row_group(number)
            log_range = group.column(column).statistics
            if log_range is None or not log_range.has_min_max:
                continue
            logs_in_group = range(log_range.min, log_range.max + 1)
            for log in logs_in_group:
                rows[log] += group.num_rows // len(logs_in_group)
    return rows


def _files(pieces: Sequence[_Piece]) -> list[list[_Piece]]:
    """Distribute consecutive logs to files."""
    rows = sum(piece.fragment.rows for piece in pieces)
    target = max(_ROWS_PER_FILE, -(-rows // _MOST_FILES))
    files: list[list[_Piece]] = []
    rows_in_file = target
    for piece in pieces:
        if rows_in_file + piece.fragment.rows > target:
            files.append([])
            rows_in_file = 0
        files[-1].append(piece)
        rows_in_file += piece.fragment.rows
    return files


def _arrange(task: _Task) -> WrittenFile:
    """Write the rows of some logs into one file, on an executor."""
    tables: list[pa.Table] = []
    repeated: dict[int, int] = {}
    for piece in task.pieces:
        rows, count = _deduplicated_rows(piece)
        tables.append(rows)
        if count:
            repeated[piece.rank] = repeated.get(piece.rank, 0) + count
    whole = pa.concat_tables(tables).combine_chunks()
    logs = task.pieces[0].log, task.pieces[-1].log
    path = f"{task.folder}/{_name(logs)}.{uuid.uuid4().hex[:8]}.parquet"
    with new_file(path) as file:
        hashing = _HashingFile(file)
        write_rows(whole, hashing)
    return WrittenFile(path, logs, whole.num_rows, hashing.size, hashing.hexdigest(), repeated)


def _name(logs: tuple[int, int]) -> str:
    return f"logs-{logs[0]:06d}-{logs[1]:06d}"


class _HashingFile(io.RawIOBase):
    """A file that computes its size and checksum while it is written."""

    def __init__(self, file: Any) -> None:
        self._file, self._digest, self.size = file, hashlib.sha256(), 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._digest.update(data)
        self._file.write(data)
        self.size += len(data)
        return len(data)

    def hexdigest(self) -> str:
        return self._digest.hexdigest()


def _deduplicated_rows(piece: _Piece) -> tuple[pa.Table, int]:
    """Return a log's distinct rows, and how many of them a later log of the collection repeats."""
    rows = _read(piece.fragment)
    if not piece.later and not _ascends(rows):
        distinct = _without(rows, ())
        return _numbered(distinct, piece), rows.num_rows - distinct.num_rows
    if not piece.later:
        return _numbered(rows, piece), 0
    kept_here = _without(rows, piece.later_here).num_rows
    return _numbered(_without(rows, piece.later), piece), rows.num_rows - kept_here


def _without(rows: pa.Table, later: Sequence[Fragment]) -> pa.Table:
    """Drop the rows of a log that the log itself or later logs of its rank and generation repeat."""
    names = ["generation", "rank", "step"]
    stacked = pa.concat_tables(
        [rows.select(names), *(_read(fragment).select(names) for fragment in later)]
    )
    # Processes of one generation may have counted differently.
    stacked = with_generations(stacked, np.int32(0))
    row = pa.array(np.arange(stacked.num_rows))
    kept, _ = last_attempts(stacked.append_column("row", row))
    own_rows = kept["row"].to_numpy()
    return rows.take(pa.array(own_rows[own_rows < rows.num_rows])).combine_chunks()


def _ascends(rows: pa.Table) -> bool:
    return bool((np.diff(rows["step"].to_numpy()) > 0).all())


def _read(fragment: Fragment, names: Sequence[str] = STEPS_SCHEMA.names[1:]) -> pa.Table:
    chosen = None if fragment.log is None else pc.field("log") == fragment.log
    rows = rows_of(fragment.paths, names, chosen)
    return rows.combine_chunks()


def _completions(fragment: Fragment) -> tuple[Ints, Ints]:
    """Read some completions of a collected log, on an executor."""
    return some_completions_of(_read(fragment, ["step", "reduced", "end"]))


def _numbered(rows: pa.Table, piece: _Piece) -> pa.Table:
    number = pa.array(np.full(rows.num_rows, piece.log, np.int32))
    rows = with_generations(rows, np.int32(piece.generation))
    return rows.add_column(0, "log", number).cast(STEPS_SCHEMA)


def _with_problems(run: Run, files: Sequence[WrittenFile]) -> Run:
    """Add problems about steps that were recorded more than once."""
    repeated: dict[int, int] = {}
    for file in files:
        for rank, count in file.repeated.items():
            repeated[rank] = repeated.get(rank, 0) + count
    return replace(run, problems=(*run.problems, *repeat_problems(repeated)))

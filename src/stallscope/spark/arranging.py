"""The steps of collected runs, arranged by executors: log by log, in files of many logs."""

from __future__ import annotations

import hashlib
import io
import uuid
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stallscope.collector.store.deduplicate import last_attempts, repeat_problems
from stallscope.collector.store.step_files import write_rows
from stallscope.run import STEPS_SCHEMA, Log, Run

from .each import each
from .parsing import Fragment, stand_in
from .storage import is_url, metadata_of, new_file, rows_of

if TYPE_CHECKING:
    # Executors import this, and need nothing that stores need.
    from stallscope.collector.store.runs import WrittenSteps

# A file that one task writes, and as many as a run is to have at most.
_ROWS_PER_FILE = 1 << 20
_MOST_FILES = 1024


@dataclass
class FarSteps:
    """Reads and writes steps on executors; tables of steps hold stand-ins for fragments here.

    Args:
        spark: the session.
        folder: where executors write before a run is whole; it may be a URL.
        fragments: by number; those of runs that were collected before are added.
    """

    spark: Any
    folder: str
    fragments: list[Fragment]
    _new: int = field(init=False)

    def __post_init__(self) -> None:
        self._new = len(self.fragments)

    def load(self, folder: Path) -> Run:
        from stallscope.collector.store.loading import load_run

        old, files = load_run(folder, ranks=()), steps_of(folder)
        there = len(self.fragments)
        rows = _rows_of_logs(files, len(old.logs))
        # One that has none has a stand-in all the same, which counts as a row.
        self.fragments += [
            Fragment(files, max(1, rows[log]), log=log) for log in range(len(old.logs))
        ]
        numbered = [(there + log, self.fragments[there + log]) for log in range(len(old.logs))]
        steps = stand_in(numbered).add_column(
            0, "log", pa.array(np.arange(len(old.logs), dtype=np.int32))
        )
        return replace(old, steps=steps.cast(STEPS_SCHEMA))

    def write(self, run: Run, folder: Path, place: Path) -> WrittenSteps:
        from stallscope.collector.address import address
        from stallscope.collector.store.manifests import ListedFile
        from stallscope.collector.store.runs import WrittenSteps, list_files

        # Nothing is moved at a URL: executors write to where it stays.
        far = address(place) if is_url(address(place)) else None
        told, found = self.arranged(run, None if far is None else f"{far}/steps")
        (folder / "steps").mkdir()
        if not found:
            write_rows(STEPS_SCHEMA.empty_table(), folder / "steps" / "logs-000000-000000.parquet")
            return WrittenSteps(told, 0, list_files(folder, "steps/*.parquet"))
        files = {}
        for one in found:
            # Of a task that ran more than once, the one that counts.
            name = f"steps/{one.name}"
            if far is None:
                name = f"steps/{_name(one.logs)}.parquet"
                Path(one.path).rename(folder / name)
            files[name] = ListedFile(one.size, one.sha256)
        return WrittenSteps(told, sum(one.rows for one in found), files)

    def arranged(self, run: Run, folder: str | None = None) -> tuple[Run, list[Arranged]]:
        """Have the rows of a run put into files of many logs, in the order of logs.

        Args:
            folder: for these files; None: where executors write anyway.

        Returns:
            The run with what was noticed on the way, and the files.
        """
        numbers = dict(
            zip(run.steps["log"].to_pylist(), run.steps["step"].to_pylist(), strict=True)
        )
        tasks = [
            _Task(pieces, folder or self.folder) for pieces in _files(self._pieces(run, numbers))
        ]
        found = each(self.spark, _arrange, tasks)
        return _told(run, found), found

    def _pieces(self, run: Run, numbers: dict[int, int]) -> list[_Piece]:
        """What becomes of each log's rows, in the order of logs."""
        by_rank: dict[tuple[int, int], list[int]] = defaultdict(list)
        for log in sorted(numbers):
            by_rank[_place(run.logs[log])].append(log)
        pieces = []
        for log, number in sorted(numbers.items()):
            own = self.fragments[number]
            later = [numbers[other] for other in by_rank[_place(run.logs[log])] if other > log]
            # Steps that a later log of this collection, or one of an earlier one, has again.
            news = [self.fragments[n] for n in later if n < self._new and number < self._new]
            all_later = [self.fragments[n] for n in later]
            pieces.append(
                _Piece(
                    log,
                    run.logs[log].rank,
                    own,
                    tuple(one for one in news if _may_overlap(own, one)),
                    tuple(one for one in all_later if _may_overlap(own, one)),
                )
            )
        return pieces


@dataclass(frozen=True)
class _Piece:
    """A log's rows, and those of later ones that may have recorded the same steps again."""

    log: int
    rank: int
    fragment: Fragment
    #: Of the same collection, and all of them.
    again: tuple[Fragment, ...]
    later: tuple[Fragment, ...]


@dataclass(frozen=True)
class _Task:
    """The logs of one file."""

    pieces: list[_Piece]
    folder: str


@dataclass(frozen=True)
class Arranged:
    """A file that an executor has written."""

    path: str
    #: The numbers of the first and the last one in it.
    logs: tuple[int, int]
    rows: int
    size: int
    sha256: str
    #: Steps that a later log of the same collection has again, by rank.
    repeated: dict[int, int]

    @property
    def name(self) -> str:
        """The last part of the path, which no other attempt uses."""
        return self.path.rpartition("/")[2]


def steps_of(folder: Path) -> tuple[str, ...]:
    """The files with a collected run's rows, as executors see them, in the order of logs."""
    from stallscope.collector.address import address
    from stallscope.collector.store.loading import STEPS, names_of
    from stallscope.collector.store.manifests import read_manifest

    names = sorted(names_of(read_manifest(folder).files, STEPS))
    return tuple(f"{address(folder)}/{name}" for name in names)


def _place(log: Log) -> tuple[int, int]:
    return log.rank, log.generation


def _may_overlap(one: Fragment, other: Fragment) -> bool:
    if one.steps is None or other.steps is None:
        return True
    return one.steps[0] <= other.steps[1] and other.steps[0] <= one.steps[1]


def _rows_of_logs(files: Sequence[str], logs: int) -> list[int]:
    """How many rows each log has, by what files say of their row groups: those of a large log hold it
    alone, and of several logs that share one, each counts the same.
    """
    rows = [0] * logs
    column = STEPS_SCHEMA.get_field_index("log")
    for told in metadata_of(files):
        for number in range(told.num_row_groups):
            group = told.row_group(number)
            range_of = group.column(column).statistics
            if range_of is None or not range_of.has_min_max:
                continue
            among = range(range_of.min, range_of.max + 1)
            for log in among:
                rows[log] += group.num_rows // len(among)
    return rows


def _files(pieces: Sequence[_Piece]) -> list[list[_Piece]]:
    """Logs that follow each other, by file."""
    rows = sum(piece.fragment.rows for piece in pieces)
    target = max(_ROWS_PER_FILE, -(-rows // _MOST_FILES))
    files: list[list[_Piece]] = []
    held = target
    for piece in pieces:
        if held + piece.fragment.rows > target:
            files.append([])
            held = 0
        files[-1].append(piece)
        held += piece.fragment.rows
    return files


def _arrange(task: _Task) -> Arranged:
    """On an executor: the rows of some logs, in one file."""
    tables: list[pa.Table] = []
    repeated: dict[int, int] = {}
    for piece in task.pieces:
        rows, again = _rows(piece)
        tables.append(rows)
        if again:
            repeated[piece.rank] = repeated.get(piece.rank, 0) + again
    whole = pa.concat_tables(tables).combine_chunks()
    logs = task.pieces[0].log, task.pieces[-1].log
    path = f"{task.folder}/{_name(logs)}.{uuid.uuid4().hex[:8]}.parquet"
    with new_file(path) as file:
        counted = _Counted(file)
        write_rows(whole, counted)
    return Arranged(path, logs, whole.num_rows, counted.size, counted.hexdigest(), repeated)


def _name(logs: tuple[int, int]) -> str:
    return f"logs-{logs[0]:06d}-{logs[1]:06d}"


class _Counted(io.RawIOBase):
    """A file, and what manifests contain of it, computed while it is written."""

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


def _rows(piece: _Piece) -> tuple[pa.Table, int]:
    """A log's rows under its number, and how many a later log of the same collection has again."""
    own = _read(piece.fragment)
    if not piece.later and not _ascends(own):
        again = _without(own, ())
        return _numbered(again, piece.log), own.num_rows - again.num_rows
    if not piece.later:
        return _numbered(own, piece.log), 0
    of_this = _without(own, piece.again).num_rows
    return _numbered(_without(own, piece.later), piece.log), own.num_rows - of_this


def _without(own: pa.Table, later: Sequence[Fragment]) -> pa.Table:
    """A log's rows without those that it or later ones have again."""
    names = ["generation", "rank", "step"]
    stacked = pa.concat_tables([own.select(names), *(_read(one).select(names) for one in later)])
    row = pa.array(np.arange(stacked.num_rows))
    kept, _ = last_attempts(stacked.append_column("row", row))
    mine = kept["row"].to_numpy()
    return own.take(pa.array(mine[mine < own.num_rows])).combine_chunks()


def _ascends(own: pa.Table) -> bool:
    return bool((np.diff(own["step"].to_numpy()) > 0).all())


def _read(fragment: Fragment) -> pa.Table:
    names = STEPS_SCHEMA.names[1:]
    chosen = None if fragment.log is None else pc.field("log") == fragment.log
    found = rows_of(fragment.paths, names, chosen)
    return found.combine_chunks()


def _numbered(rows: pa.Table, log: int) -> pa.Table:
    number = pa.array(np.full(rows.num_rows, log, np.int32))
    return rows.add_column(0, "log", number).cast(STEPS_SCHEMA)


def _told(run: Run, files: Sequence[Arranged]) -> Run:
    """The run, with what was found of steps that were recorded more than once."""
    repeated: dict[int, int] = {}
    for file in files:
        for rank, count in file.repeated.items():
            repeated[rank] = repeated.get(rank, 0) + count
    return replace(run, problems=(*run.problems, *repeat_problems(repeated)))

"""Open runs for reports on a cluster: steps stay on shared storage, and executors read them."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from stallscope.arrays.blocks import NULL
from stallscope.arrays.memory import in_memory
from stallscope.arrays.pivot import Pivoted, RemoteTable, pivot, with_log_numbers
from stallscope.arrays.types import Ints
from stallscope.batch.units import Unit
from stallscope.batch.worker import IdentifiedRun
from stallscope.collector.address import address
from stallscope.collector.run_names import RunAddress
from stallscope.collector.source_kinds import open_source
from stallscope.collector.sources.source import Source
from stallscope.collector.store.fetch import fetch
from stallscope.collector.store.loading import load_run
from stallscope.errors import UnwritableError, UsageError
from stallscope.opening import named_runs
from stallscope.parsers import read
from stallscope.run import STEPS_SCHEMA, Run

from .arranging import RemoteSteps, steps_of
from .each import check_shared, each
from .parsing import RemoteReader
from .scratch import keep, scratch_at
from .spark_cells import CellFile, Cluster, SparkMatrix, write_cells
from .storage import is_url, metadata_of, remove, rows_of

T = TypeVar("T")
#: Rows of a part, about 90 MB, unless one rank has more.
ROWS_OF_A_PART = 2**20

#: The driver reads the steps of shorter runs: a single executor would read them again for each kernel.
MOST_ROWS_ON_DRIVER = ROWS_OF_A_PART


@dataclass(frozen=True)
class _RunFiles:
    """A run and the files with its rows; no files if the driver has the rows."""

    run: Run
    files: tuple[str, ...] = ()
    rows: int = 0


@dataclass
class RemoteRuns:
    """Opens runs for executors.

    Args:
        spark: the session.
        scratch: a shared folder or a URL for temporary files of executors; None: next to the runs.
    """

    spark: Any
    scratch: str | None = None
    #: The clusters of runs in use, with the functions that remove their cells.
    _clusters: weakref.WeakKeyDictionary[Cluster, Callable[[], object]] = field(
        default_factory=weakref.WeakKeyDictionary
    )
    #: The parsed logs by place, and the folders with their rows.
    _parsed: dict[str, list[_RunFiles]] = field(default_factory=dict)
    _row_folders: list[str] = field(default_factory=list)

    def identify(
        self, unit: Unit, read_as: str | None, scratch: Path | None
    ) -> list[IdentifiedRun]:
        """Return the runs at a place with their facts; executors cannot read local copies."""
        if unit.collected:
            return [IdentifiedRun(run, unit, unit) for run in unit.heads(read_as)]
        runs = [files.run for files in self._logs(unit, read_as)]
        places = [unit] if len(runs) == 1 else [unit.of_run(run.id) for run in runs]
        return [IdentifiedRun(run, place, place) for run, place in zip(runs, places, strict=True)]

    def read(self, unit: Unit, read_as: str | None) -> Run:
        """Return a run, with a remote table if it is long; parse logs only once.

        Raises:
            NotFoundError, UnreadableError: see ``Unit.read``.
            UsageError: if there is no place for temporary files of executors.
            UnwritableError: if that place cannot be written.
        """
        files_of_run = _collected(unit) if unit.collected else self._logs(unit, read_as)[0]
        if not files_of_run.files:
            return files_of_run.run
        if files_of_run.rows <= MOST_ROWS_ON_DRIVER:
            return replace(files_of_run.run, steps=rows_by_log(files_of_run.files))
        cluster = Cluster(self.spark, self._new_scratch(unit))
        # Remove the folder with all cells as soon as the cluster is not in use.
        self._clusters[cluster] = weakref.finalize(cluster, remove, cluster.folder)
        steps = SparkTable(
            cluster, files_of_run.files, tuple(files_of_run.run.ranks), files_of_run.rows
        )
        return replace(files_of_run.run, steps=cast("pa.Table", steps))

    def close(self) -> None:
        """Remove the temporary files of executors."""
        for close in list(self._clusters.values()):
            close()
        for place in self._row_folders:
            remove(place)

    def _logs(self, unit: Unit, read_as: str | None) -> list[_RunFiles]:
        if unit.key not in self._parsed:
            parsed = self._parse(unit, read_as)
            self._parsed[unit.key] = parsed
            self._parsed |= {unit.of_run(files.run.id).key: [files] for files in parsed}
        return self._parsed[unit.key]

    def _parse(self, unit: Unit, read_as: str | None) -> list[_RunFiles]:
        folder = self._new_scratch(unit)
        try:
            reads = RemoteReader(self.spark, read_as, folder)
            place = _accessible(open_source(unit.place), folder)
            runs = named_runs(
                RunAddress(unit.place, unit.run), read(place, read_as=read_as, reads=reads)
            )
            if not reads.fragments:
                # Profiler traces and logs of epochs have few rows, which the driver already has.
                return [_RunFiles(run) for run in runs]
            return [self._arranged(run, unit, reads) for run in runs]
        finally:
            # The folder may have files of failed attempts.
            remove(folder)

    def _arranged(self, run: Run, unit: Unit, reads: RemoteReader) -> _RunFiles:
        """Let executors write the rows of a run in order."""
        rows = self._new_scratch(unit)
        self._row_folders.append(rows)
        arranged, files = RemoteSteps(self.spark, rows, [*reads.fragments]).arrange(run)
        paths = tuple(file.path for file in files)
        return _RunFiles(arranged, paths, sum(file.rows for file in files))

    def _new_scratch(self, unit: Unit) -> str:
        # Baselines may be in use for days.
        keep((*self._row_folders, *(cluster.folder for cluster in self._clusters)))
        if self.scratch is not None:
            return scratch_at(self.scratch)
        # Do not resolve links, because executors may have the target elsewhere.
        named = Path(unit.place).absolute()
        if is_url(address(named)):
            return scratch_at(address(named.parent))
        if not named.exists():
            raise UsageError(
                f"{unit.place}: executors need a place for temporary files; name a folder that all "
                "machines share, or a URL, with --scratch"
            )
        try:
            return scratch_at(str(named.parent))
        except UnwritableError as error:
            raise UnwritableError(f"{error}; name another place with --scratch") from error


def _collected(unit: Unit) -> _RunFiles:
    # Do not resolve links, because executors may have the target elsewhere.
    folder = Path(unit.place).absolute()
    run, files = load_run(folder, with_steps=False), steps_of(folder)
    return _RunFiles(run, files, sum(metadata.num_rows for metadata in metadata_of(files)))


def _accessible(place: Source, scratch: str) -> Source:
    """Return a place that executors can read: the place itself, or a copy in a shared folder."""
    if place.local or place.portable:
        return place
    if is_url(scratch):
        raise UsageError(
            f"{place.where}: executors cannot read there, and copies need a folder that all "
            "machines share: name one with --scratch"
        )
    return fetch(place, Path(scratch))


@contextmanager
def remote_runs(spark: Any, scratch: str | None = None) -> Iterator[RemoteRuns]:
    """Open runs for executors; remove their temporary files at the end of the block."""
    runs = RemoteRuns(spark, scratch)
    try:
        yield runs
    finally:
        runs.close()


# -- table -----------------------------------------------------------------------------------------
#
# Compute on a run's steps on executors, without loading rows on the driver.


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

"""Open runs for reports on a cluster: steps stay on shared storage, and executors read them."""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import pyarrow as pa

from stallscope.batch.units import Unit
from stallscope.batch.worker import IdentifiedRun
from stallscope.collector.run_names import RunAddress
from stallscope.collector.source_kinds import open_source
from stallscope.collector.sources.source import Source
from stallscope.collector.store.fetch import fetch, writing
from stallscope.collector.store.layout import address
from stallscope.collector.store.loading import load_run
from stallscope.errors import UnwritableError, UsageError
from stallscope.opening import named_runs
from stallscope.parsers import read
from stallscope.run import Run

from .arranging import RemoteSteps, steps_of
from .parsing import RemoteReader
from .remote_steps import ROWS_OF_A_PART, SparkTable, rows_by_log
from .spark_cells import Cluster
from .storage import is_url, metadata_of, remove

# Older folders are leftovers of killed drivers: a running driver, on any machine, writes at least daily.
_LEFTOVER_SECONDS = 24 * 3600
# The pattern of ``mkdtemp``, so that other folders do not match.
_SCRATCH_PATTERN = ".stallscope-spark-" + "[a-z0-9_]" * 8
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


# -- Temporary places for executors to write to -----------------------------------------------------


def scratch_at(place: str) -> str:
    """Return a new place for executors to write to, in a folder or at a URL.

    Raises:
        UnwritableError: if the folder is not writable.
    """
    if is_url(place):
        # Writing the first file creates the place.
        return f"{place.rstrip('/')}/.stallscope-spark-{secrets.token_hex(4)}"
    return str(scratch_in(Path(place)))


def scratch_in(store: Path) -> Path:
    """Create a folder in a store for executors to write to; remove those of killed drivers.

    Raises:
        UnwritableError: if the store is not writable.
    """
    with writing(store):
        store.mkdir(parents=True, exist_ok=True)
        _remove_leftovers(store)
        # Do not resolve links, because executors may have the target elsewhere.
        folder = Path(tempfile.mkdtemp(prefix=".stallscope-spark-", dir=store)).absolute()
        # Executors may run as another user.
        folder.chmod(store.stat().st_mode)
    return folder


def keep(places: Iterable[str]) -> None:
    """Update the modification times of folders, to show that they are in use."""
    for place in places:
        with suppress(OSError):  # the place is a URL, or another process has removed it
            os.utime(place)


def _remove_leftovers(store: Path) -> None:
    for folder in store.glob(_SCRATCH_PATTERN):
        with suppress(OSError):  # the driver has removed it meanwhile
            if folder.stat().st_mtime < time.time() - _LEFTOVER_SECONDS:
                shutil.rmtree(folder, ignore_errors=True)

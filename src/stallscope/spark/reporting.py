"""Runs whose steps stay on the storage that all see: executors look at them."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import pyarrow as pa

from stallscope.batch.units import Unit
from stallscope.collector.address import address
from stallscope.collector.registry import open_source
from stallscope.collector.sources.base import Source
from stallscope.collector.store.fetch import fetch
from stallscope.collector.store.loading import load_run
from stallscope.errors import UnwritableError, UsageError
from stallscope.parsers import read
from stallscope.run import Run
from stallscope.runs import choose_run

from .arranging import FarSteps, steps_of
from .cells import Cluster
from .parsing import FarReads
from .scratch import keep, scratch_at
from .storage import is_url, metadata_of, remove
from .table import SparkTable


@dataclass(frozen=True)
class _Held:
    """A run, and the files that have its rows; none where they are here."""

    run: Run
    files: tuple[str, ...] = ()
    rows: int = 0


@dataclass
class FarRuns:
    """Opens runs for executors.

    Args:
        spark: the session.
        scratch: where executors may write until reports are there, a folder that all machines share or a
            URL; None: beside the runs.
    """

    spark: Any
    scratch: str | None = None
    #: Of runs that are still in use, with what removes their cells.
    _held: weakref.WeakKeyDictionary[Cluster, Callable[[], object]] = field(
        default_factory=weakref.WeakKeyDictionary
    )
    #: By place, what was parsed of logs, and where the rows of those are.
    _parsed: dict[str, _Held] = field(default_factory=dict)
    _rows: list[str] = field(default_factory=list)

    def identify(self, unit: Unit, read_as: str | None, scratch: Path) -> tuple[Run, Unit]:
        """A run with its facts, and where it is read: copies would be where no executor sees them."""
        return (unit.head(read_as) if unit.collected else self._logs(unit, read_as).run), unit

    def read(self, unit: Unit, read_as: str | None) -> Run:
        """A run with a table that is elsewhere. Logs are parsed first, once.

        Raises:
            NotFoundError, UnreadableError: as ``Unit.read``.
            UsageError: if no place for executors to write is named or known.
            UnwritableError: if nothing can be written there.
        """
        held = _collected(unit) if unit.collected else self._logs(unit, read_as)
        if not held.files:
            return held.run
        cluster = Cluster(self.spark, self._new_scratch(unit))
        # Gone with all cells in it, as soon as they are not in use.
        self._held[cluster] = weakref.finalize(cluster, remove, cluster.folder)
        steps = SparkTable(cluster, held.files, tuple(held.run.ranks), held.rows)
        return replace(held.run, steps=cast("pa.Table", steps))

    def end(self) -> None:
        """Remove what executors have written for runs that are still in use."""
        for end in list(self._held.values()):
            end()
        for place in self._rows:
            remove(place)

    def _logs(self, unit: Unit, read_as: str | None) -> _Held:
        if unit.key not in self._parsed:
            self._parsed[unit.key] = self._parse(unit, read_as)
        return self._parsed[unit.key]

    def _parse(self, unit: Unit, read_as: str | None) -> _Held:
        named, _, run_id = unit.place.partition("#")
        folder = self._new_scratch(unit)
        try:
            reads = FarReads(self.spark, read_as, folder)
            runs = read(_near(open_source(named), folder), read_as=read_as, reads=reads)
            run = choose_run(named, run_id, runs)
            if not reads.fragments:
                # Profilers' traces and logs of epochs have few rows; they are here already.
                return _Held(run)
            rows = self._new_scratch(unit)
            self._rows.append(rows)
            told, files = FarSteps(self.spark, rows, [*reads.fragments]).arranged(run)
            paths = tuple(one.path for one in files)
            return _Held(told, paths, sum(one.rows for one in files))
        finally:
            # With what attempts have left that do not count.
            remove(folder)

    def _new_scratch(self, unit: Unit) -> str:
        # Baselines may be held for days.
        keep((*self._rows, *(cluster.folder for cluster in self._held)))
        if self.scratch is not None:
            return scratch_at(self.scratch)
        # Not what a link leads to: executors may have it elsewhere.
        named = Path(unit.place.partition("#")[0]).absolute()
        if is_url(address(named)):
            return scratch_at(address(named.parent))
        if not named.exists():
            raise UsageError(
                f"{unit.place}: where may executors write? Name a folder that all machines share, "
                "or a URL, with --scratch"
            )
        try:
            return scratch_at(str(named.parent))
        except UnwritableError as error:
            raise UnwritableError(f"{error}; --scratch names another place") from error


def _collected(unit: Unit) -> _Held:
    # Not what a link leads to: executors may have it elsewhere.
    folder = Path(unit.place).absolute()
    run, files = load_run(folder, ranks=()), steps_of(folder)
    return _Held(run, files, sum(told.num_rows for told in metadata_of(files)))


def _near(place: Source, scratch: str) -> Source:
    """A place as executors read it: itself, or a copy where all see it."""
    if place.local or place.portable:
        return place
    if is_url(scratch):
        raise UsageError(
            f"{place.where}: executors cannot read there, and copies need a folder that all "
            "machines share: name one with --scratch"
        )
    return fetch(place, Path(scratch))


@contextmanager
def far_runs(spark: Any, scratch: str | None = None) -> Iterator[FarRuns]:
    """What opens runs as long as the block lasts; what executors have written goes with it."""
    runs = FarRuns(spark, scratch)
    try:
        yield runs
    finally:
        runs.end()

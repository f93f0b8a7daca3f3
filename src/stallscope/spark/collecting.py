"""Collect runs with Spark: executors read the logs and write the steps."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stallscope.batch.units import Unit
from stallscope.catalogue.collecting import Engine, list_runs
from stallscope.collector.address import address
from stallscope.collector.sources.base import Source
from stallscope.collector.store.fetch import Progress, fetch
from stallscope.collector.store.loading import RunOnDisk
from stallscope.collector.store.mirror import Mirror
from stallscope.collector.store.runs import save_run
from stallscope.errors import UsageError
from stallscope.parsers import read
from stallscope.run import Run

from .arranging import RemoteSteps
from .parsing import RemoteReader
from .reporting import remote_runs
from .scratch import scratch_at
from .storage import remove


@dataclass(frozen=True)
class SparkEngine(Engine):
    """Collects with Spark.

    Args:
        spark: the session.
    """

    spark: Any

    def prepare(self, place: Source, store: Path, progress: Progress) -> Source:
        if place.local or place.portable:
            return place
        if Mirror.of(store) is not None:
            raise UsageError(
                f"{place.where}: executors cannot read there, and a store at a URL cannot have copies: "
                "collect it without --engine spark, or into a folder that all machines share"
            )
        return fetch(place, store, progress)

    def save_runs(self, place: Source, store: Path, read_as: str | None) -> list[Path]:
        folder = scratch_at(address(store))
        try:
            reads = RemoteReader(self.spark, read_as, folder)
            runs = read(place, read_as=read_as, reads=reads)
            # Profiler traces and logs of epochs have few rows, which the driver already has.
            return [save_run(run, store, self._steps(reads)) for run in runs]
        finally:
            # The folder may have files of failed attempts.
            remove(folder)

    def _steps(self, reads: RemoteReader) -> RemoteSteps | None:
        return (
            RemoteSteps(self.spark, reads.folder, [*reads.fragments]) if reads.fragments else None
        )

    def open_run(self, folder: Path) -> Run:
        return RunOnDisk.open(folder)

    def list_runs(self, runs: Iterable[tuple[Run, Path]], store: Path) -> None:
        """Add runs to the store's catalogue, with summaries of analyses on executors."""
        with remote_runs(self.spark) as remote:
            list_runs(
                runs, store, lambda folder: remote.read(Unit(str(folder), collected=True), None)
            )

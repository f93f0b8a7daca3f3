"""From a source to collected runs by Spark: executors read the logs and write the steps."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stallscope.batch.units import Unit
from stallscope.catalogue.collecting import list_runs
from stallscope.collector.address import address
from stallscope.collector.sources.base import Source
from stallscope.collector.store.fetch import Progress, fetch
from stallscope.collector.store.loading import RunOnDisk
from stallscope.collector.store.mirror import Mirror
from stallscope.collector.store.runs import save_run
from stallscope.errors import UsageError
from stallscope.parsers import read
from stallscope.run import Run

from .arranging import FarSteps
from .parsing import FarReads
from .reporting import far_runs
from .scratch import scratch_at
from .storage import remove


@dataclass(frozen=True)
class OnSpark:
    """Collects with Spark (see ``stallscope.catalogue.collecting.Engine``).

    Args:
        spark: the session.
    """

    spark: Any

    def near(self, place: Source, store: Path, progress: Progress) -> Source:
        if place.local or place.portable:
            return place
        if Mirror.of(store) is not None:
            raise UsageError(
                f"{place.where}: executors cannot read there, and a store at a URL has no room for "
                "copies: collect it without --engine spark, or into a folder that all machines share"
            )
        return fetch(place, store, progress)

    def saved(self, place: Source, store: Path, read_as: str | None) -> list[Path]:
        folder = scratch_at(address(store))
        try:
            reads = FarReads(self.spark, read_as, folder)
            runs = read(place, read_as=read_as, reads=reads)
            # Profilers' traces and logs of epochs have few rows; they are here already.
            return [save_run(run, store, self._steps(reads)) for run in runs]
        finally:
            # With what attempts have left that do not count.
            remove(folder)

    def _steps(self, reads: FarReads) -> FarSteps | None:
        return FarSteps(self.spark, reads.folder, [*reads.fragments]) if reads.fragments else None

    def opened(self, folder: Path) -> Run:
        return RunOnDisk.open(folder)

    def list_runs(self, runs: Iterable[tuple[Run, Path]], store: Path) -> None:
        """Enter runs into the store's catalogue, with what executors find to hold them back."""
        with far_runs(self.spark) as far:
            list_runs(runs, store, lambda folder: far.read(Unit(str(folder), collected=True), None))

"""Collected runs whose steps stay on the storage that all see: executors look at them."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq

from stallscope.batch.units import Unit
from stallscope.collector.catalogue.manifests import read_manifest
from stallscope.collector.fetch import writing
from stallscope.collector.loading import load_run
from stallscope.errors import UsageError
from stallscope.run import Run

from .cells import Cluster
from .table import FarTable


@dataclass
class FarRuns:
    """Opens collected runs for executors.

    Args:
        spark: the session.
        scratch: by store, the folder that executors write to.
    """

    spark: Any
    scratch: dict[Path, Path]

    def read(self, unit: Unit, read_as: str | None) -> Run:
        """A run with a table that is elsewhere.

        Raises:
            UsageError: if the run is not collected.
            NotFoundError, UnreadableError: as ``load_run``.
            UnwritableError: if nothing can be written beside it.
        """
        if not unit.collected:
            raise UsageError(
                f"{unit.place}: --engine spark reports on collected runs: stallscope collect "
                f"{unit.place} --to STORE --engine spark, then name the STORE"
            )
        folder = Path(unit.place).resolve()
        run = load_run(folder, ranks=())
        names = sorted(read_manifest(folder).files)
        files = tuple(str(folder / name) for name in names if name.startswith("steps"))
        rows = sum(pq.read_metadata(file).num_rows for file in files)
        cluster = Cluster(self.spark, str(self._scratch(folder.parent)))
        steps = FarTable(cluster, files, tuple(run.ranks), rows)
        return replace(run, steps=cast("pa.Table", steps))

    def _scratch(self, store: Path) -> Path:
        if store not in self.scratch:
            with writing(store):
                made = Path(tempfile.mkdtemp(prefix=".spark-", dir=store))
                made.chmod(store.stat().st_mode)
            self.scratch[store] = made
        return self.scratch[store]


@contextmanager
def far_runs(spark: Any) -> Iterator[FarRuns]:
    """What opens runs as long as the block lasts; what executors have written goes with it."""
    runs = FarRuns(spark, {})
    try:
        yield runs
    finally:
        for folder in runs.scratch.values():
            shutil.rmtree(folder, ignore_errors=True)

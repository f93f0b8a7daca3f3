"""Collected runs whose steps stay on the storage that all see: executors look at them."""

from __future__ import annotations

import shutil
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq

from stallscope.batch.units import Unit
from stallscope.collector.catalogue.manifests import read_manifest
from stallscope.collector.loading import load_run
from stallscope.run import Run

from .cells import Cluster
from .scratch import keep, scratch_in
from .table import FarTable


@dataclass
class FarRuns:
    """Opens collected runs for executors.

    Args:
        spark: the session.
    """

    spark: Any
    #: Of runs that somebody still holds.
    _held: weakref.WeakSet[Cluster] = field(default_factory=weakref.WeakSet)

    def read(self, unit: Unit, read_as: str | None) -> Run:
        """A collected run with a table that is elsewhere.

        Raises:
            NotFoundError, UnreadableError: as ``load_run``.
            UnwritableError: if nothing can be written beside it.
        """
        # Not what a link leads to: executors may have it elsewhere.
        folder = Path(unit.place).absolute()
        run = load_run(folder, ranks=())
        names = sorted(read_manifest(folder).files)
        files = tuple(str(folder / name) for name in names if name.startswith("steps"))
        rows = sum(pq.read_metadata(file).num_rows for file in files)
        # Baselines may be held for days.
        keep(Path(cluster.folder) for cluster in self._held)
        scratch = scratch_in(folder.parent)
        cluster = Cluster(self.spark, str(scratch))
        self._held.add(cluster)
        # Gone with all cells in it, as soon as nobody holds them any longer.
        weakref.finalize(cluster, shutil.rmtree, scratch, ignore_errors=True)
        steps = FarTable(cluster, files, tuple(run.ranks), rows)
        return replace(run, steps=cast("pa.Table", steps))

    def end(self) -> None:
        """Remove what executors have written for runs that somebody still holds."""
        for cluster in self._held:
            shutil.rmtree(cluster.folder, ignore_errors=True)


@contextmanager
def far_runs(spark: Any) -> Iterator[FarRuns]:
    """What opens runs as long as the block lasts; what executors have written goes with it."""
    runs = FarRuns(spark)
    try:
        yield runs
    finally:
        runs.end()

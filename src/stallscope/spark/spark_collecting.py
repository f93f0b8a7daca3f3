"""Collect runs with Spark: executors read the logs and write the steps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stallscope.batch.units import Unit
from stallscope.catalogue.collecting import Engine, list_runs
from stallscope.collector.sources.source import Source, reason
from stallscope.collector.store.fetch import Progress, fetch
from stallscope.collector.store.layout import address
from stallscope.collector.store.loading import RunOnDisk
from stallscope.collector.store.mirror import Mirror
from stallscope.collector.store.run_folders import save_run
from stallscope.errors import MissingExtraError, UnreadableError, UsageError
from stallscope.parsers import read
from stallscope.run import Run

from .arranging import RemoteSteps
from .parsing import RemoteReader
from .reporting import remote_runs, scratch_at
from .storage import remove

# Messages of pyspark's versions if Java does not start.
_NO_JAVA = ("JAVA_GATEWAY_EXITED", "Java gateway process exited")


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


# -- Open the user's Spark session: the active one, or a new one with the user's configuration ----


@contextmanager
def session() -> Iterator[Any]:
    """Open Spark's session; close it at the end of the block if it is new.

    The user configures master and memory, with ``spark-submit``, ``spark-defaults.conf`` or a notebook.

    Raises:
        MissingExtraError: if Spark is not installed.
        UnreadableError: if Spark does not start.
    """
    try:
        from pyspark.sql import SparkSession
    except ModuleNotFoundError as error:
        raise MissingExtraError("spark", "Spark") from error
    existing = SparkSession.getActiveSession()
    # A session is active in one thread; its context belongs to the process.
    is_own = existing is None and not _has_context()
    spark = existing or _start(SparkSession)
    try:
        yield spark
    finally:
        if is_own:
            spark.stop()


def _has_context() -> bool:
    import pyspark

    # Clients of Spark Connect have no context.
    kind = getattr(pyspark, "SparkContext", None)
    return getattr(kind, "_active_spark_context", None) is not None


def _start(kind: Any) -> Any:
    try:
        return kind.builder.appName("stallscope").getOrCreate()
    except Exception as error:  # the errors of pyspark and py4j differ between versions
        cause = reason(error)
        if any(sign in str(error) for sign in _NO_JAVA):
            cause = (
                "Java did not start; Spark needs Java 17, and JAVA_HOME if Java is not on the path"
            )
        raise UnreadableError(f"Spark does not start: {cause}") from error

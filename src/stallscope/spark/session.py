"""Open the user's Spark session: the active one, or a new one with the user's configuration."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from stallscope.collector.sources.base import reason
from stallscope.errors import MissingExtraError, UnreadableError

# Messages of pyspark's versions if Java does not start.
_NO_JAVA = ("JAVA_GATEWAY_EXITED", "Java gateway process exited")


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

"""The user's Spark: as their own configuration makes it, or the session that is there already."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from stallscope.errors import MissingExtraError, UnreadableError

# How pyspark says that it could not start Java, in its versions.
_NO_JAVA = ("JAVA_GATEWAY_EXITED", "Java gateway process exited")


@contextmanager
def session() -> Iterator[Any]:
    """Spark's session as long as the block lasts; one that was there before goes on after it.

    Master, memory and all else are the user's: of ``spark-submit``, ``spark-defaults.conf``, a notebook.

    Raises:
        MissingExtraError: if Spark is not installed.
        UnreadableError: if it does not start.
    """
    try:
        from pyspark.sql import SparkSession
    except ModuleNotFoundError as error:
        raise MissingExtraError("spark", "Spark") from error
    there = SparkSession.getActiveSession()
    # Sessions are active in one thread each; the context below them is the process's.
    ours = there is None and not _has_context()
    spark = there or _started(SparkSession)
    try:
        yield spark
    finally:
        if ours:
            spark.stop()


def _has_context() -> bool:
    import pyspark

    # Clients of Spark Connect have no contexts.
    kind = getattr(pyspark, "SparkContext", None)
    return getattr(kind, "_active_spark_context", None) is not None


def _started(kind: Any) -> Any:
    try:
        return kind.builder.appName("stallscope").getOrCreate()
    except Exception as error:  # pyspark's and py4j's, which differ from version to version
        said = (str(error).strip().splitlines() or [type(error).__name__])[0]
        if any(sign in str(error) for sign in _NO_JAVA):
            said = "Java did not; Spark needs Java 17, and JAVA_HOME where it is not on the path"
        raise UnreadableError(f"Spark does not start: {said}") from error

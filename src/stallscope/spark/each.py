"""The one thing that Spark does here: a function for every task, on executors, as Arrow batches."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import pyarrow as pa

from stallscope import __version__, errors

R = TypeVar("R")

_SCHEMA = "task long, found binary"
_OURS = re.compile(r"stallscope\.errors\.(\w+): (.+)")
_MISSING = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")
_NEEDED = (
    "executors need the driver's Python version with stallscope, numpy and pyarrow: install them on "
    "every worker and name their Python in PYSPARK_PYTHON, or ship them (spark.archives; %pip on "
    "Databricks)"
)


def each(spark: Any, function: Callable[..., R], tasks: Sequence[Any], *shared: Any) -> list[R]:
    """What a function gives for every task, in the order of the tasks, in which they also begin.

    A task may run more than once, where an executor is lost or is slow; one result of each counts.

    Args:
        spark: the session.
        function: of a module; what it gives is small, for all of it comes to the driver.
        tasks: what it is called with, once each.
        shared: what it is given besides, the same for all.

    Raises:
        StallscopeError: if a task has raised one, or executors lack what it needs.
    """
    if not tasks:
        return []
    from pyspark import cloudpickle

    dumps: Callable[[Any], bytes] = cloudpickle.dumps
    packed, all_the_same = [dumps(task) for task in tasks], dumps(shared)
    version = __version__

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from stallscope.spark.each import done

        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield done(number, function, packed[number], all_the_same, version)

    rows = spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(work, _SCHEMA)
    try:
        found = {row["task"]: row["found"] for row in rows.collect()}
    except Exception as error:  # pyspark's and py4j's, which differ from version to version
        raise _meant(error) from error
    return [pickle.loads(found[number]) for number in range(len(tasks))]


def done(
    number: int, function: Callable[..., Any], packed: bytes, shared: bytes, version: str
) -> pa.RecordBatch:
    """One task, on an executor."""
    if version != __version__:
        raise errors.UsageError(
            f"the driver has stallscope {version}, and an executor {__version__}: install the same one"
        )
    result = function(pickle.loads(packed), *pickle.loads(shared))
    found = pickle.dumps(result, pickle.HIGHEST_PROTOCOL)
    arrays = [pa.array([number], pa.int64()), pa.array([found], pa.binary())]
    return pa.RecordBatch.from_arrays(arrays, names=["task", "found"])


def _meant(error: Exception) -> Exception:
    """What a failed job of Spark's means: the sentence that an executor has said, where it did."""
    said = str(error)
    ours = _OURS.search(said)
    kind = None if ours is None else getattr(errors, ours[1], None)
    if ours is not None and isinstance(kind, type) and issubclass(kind, errors.StallscopeError):
        return (
            errors.UnreadableError(ours[2]) if kind is errors.MissingExtraError else kind(ours[2])
        )
    missing = _MISSING.search(said)
    if missing is not None:
        return errors.UsageError(f"an executor of Spark has no module {missing[1]!r}; {_NEEDED}")
    if "PYTHON_VERSION_MISMATCH" in said or "different version" in said:
        return errors.UsageError(f"executors have another Python than the driver; {_NEEDED}")
    return error

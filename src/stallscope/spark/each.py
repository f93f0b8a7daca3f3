"""The one thing that Spark does here: a function for every task, on executors, as Arrow batches."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

from stallscope import __version__, errors

from .storage import is_url

R = TypeVar("R")

_SCHEMA = "task long, found binary"
_OURS = re.compile(r"stallscope\.errors\.(\w+): (.+)")
_MISSING = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")
# An executor's Python: what it has no room for or cannot reach, unlike a defect.
_TRACEBACK = "Traceback (most recent call last)"
_LACKS = re.compile(
    r"^(?:[\w.]+\.)?(\w*MemoryError|OSError|FileNotFoundError|PermissionError)(?:: (.+))?$", re.M
)
# Spark's Java, below what calls it.
_REASON = re.compile(r"^(?:: |Caused by: )?(?:[\w$]+\.)+\w*(?:Exception|Error): (.+)$", re.M)
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
        StallscopeError: if a task has raised one, executors lack what it needs, or Spark gave up.
    """
    if not tasks:
        return []
    from pyspark import cloudpickle

    dumps: Callable[[Any], bytes] = cloudpickle.dumps
    packed, all_the_same = [dumps(task) for task in tasks], dumps(shared)
    version = __version__

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from .each import done

        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield done(number, function, packed[number], all_the_same, version)

    try:
        rows = spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(work, _SCHEMA)
        found = {row["task"]: row["found"] for row in rows.collect()}
    except Exception as error:  # pyspark's and py4j's, which differ from version to version
        raise meant(error) from error
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


def check_shared(folder: str) -> None:
    """On an executor: see that it has a folder that the driver has made; a URL shows itself.

    Raises:
        UnwritableError: if it has not.
    """
    if not is_url(folder) and not Path(folder).is_dir():
        raise errors.UnwritableError(
            f"{Path(folder).parent}: an executor of Spark does not see this folder; name one that the "
            "driver and all executors share, like a mounted file system, /dbfs or /Volumes"
        )


def meant(error: Exception) -> Exception:
    """What a failed job of Spark's means: the sentence that an executor has said, where it did.

    Returns:
        A StallscopeError; the error itself where it is a defect of what tasks do.
    """
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
    lacks = _LACKS.search(said)
    if lacks is not None:
        return _gave_up(": ".join(filter(None, lacks.groups())))
    if _TRACEBACK in said:
        return error
    reason = _REASON.search(said)
    first = (said.strip().splitlines() or [type(error).__name__])[0]
    return _gave_up(first if reason is None else reason[1])


def _gave_up(reason: str) -> errors.UnreadableError:
    return errors.UnreadableError(
        f"Spark gave up: {reason.strip().rstrip('.')}; look into its log, give driver or executors more "
        "memory or disk if that is what they lacked, and run the same command again"
    )

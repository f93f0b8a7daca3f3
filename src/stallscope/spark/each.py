"""Run a function for every task on executors; they return results as Arrow batches."""

from __future__ import annotations

import gc
import pickle
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

from stallscope import __version__, errors

from .storage import is_url

R = TypeVar("R")

# The number of modules that were last taken out of garbage collection.
_modules = 0

_SCHEMA = "task long, found binary"
_OWN_ERROR = re.compile(r"stallscope\.errors\.(\w+): (.+)")
_MISSING = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")
# Errors of an executor's Python about memory, disks or files; others are defects.
_TRACEBACK = "Traceback (most recent call last)"
_RESOURCE_ERROR = re.compile(
    r"^(?:[\w.]+\.)?(\w*MemoryError|OSError|FileNotFoundError|PermissionError)(?:: (.+))?$", re.M
)
# The cause of an error in Spark's Java stack trace.
_REASON = re.compile(r"^(?:: |Caused by: )?(?:[\w$]+\.)+\w*(?:Exception|Error): (.+)$", re.M)
_NEEDED = (
    "executors need the driver's Python version with stallscope, numpy and pyarrow: install them on "
    "every worker and name their Python in PYSPARK_PYTHON, or ship them (spark.archives; %pip on "
    "Databricks)"
)


def each(spark: Any, function: Callable[..., R], tasks: Sequence[Any], *shared: Any) -> list[R]:
    """Run a function for every task; return the results in the order of the tasks.

    A task may run more than once if an executor is lost or slow; one result of each task counts.

    Args:
        spark: the session.
        function: a function of a module; its results must be small, because the driver gets all of them.
        tasks: the first argument of each call.
        shared: further arguments, the same for all calls.

    Raises:
        StallscopeError: if a task has raised one, executors lack a package, or Spark failed.
    """
    if not tasks:
        return []
    from pyspark import cloudpickle

    # Tasks are values; only what they share may have functions of a notebook, which take longer to pack.
    packed = [pickle.dumps(task, pickle.HIGHEST_PROTOCOL) for task in tasks]
    dumps: Callable[[Any], bytes] = cloudpickle.dumps
    packed_shared = dumps(shared)
    version = __version__

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from .each import run_task

        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield run_task(number, function, packed[number], packed_shared, version)

    try:
        rows = spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(work, _SCHEMA)
        results = {row["task"]: row["found"] for row in rows.collect()}
    except Exception as error:  # the errors of pyspark and py4j differ between versions
        raise translate_error(error) from error
    return [pickle.loads(results[number]) for number in range(len(tasks))]


def run_task(
    number: int, function: Callable[..., Any], packed: bytes, shared: bytes, version: str
) -> pa.RecordBatch:
    """Run one task, on an executor."""
    if version != __version__:
        raise errors.UsageError(
            f"the driver has stallscope {version}, and an executor {__version__}: install one version"
        )
    result = function(pickle.loads(packed), *pickle.loads(shared))
    _freeze_imported()
    packed_result = pickle.dumps(result, pickle.HIGHEST_PROTOCOL)
    arrays = [pa.array([number], pa.int64()), pa.array([packed_result], pa.binary())]
    return pa.RecordBatch.from_arrays(arrays, names=["task", "found"])


def _freeze_imported() -> None:
    """Take imported modules out of garbage collection, in a worker that tasks share.

    After each task Spark collects garbage in the worker. Looking through numpy, pyarrow and scipy each
    time takes 80 ms, more than most tasks.
    """
    global _modules
    if len(sys.modules) != _modules:
        _modules = len(sys.modules)
        gc.collect()
        gc.freeze()


def check_shared(folder: str) -> None:
    """Check that an executor has the folder that the driver has created; URLs need no check.

    Raises:
        UnwritableError: if it does not.
    """
    if not is_url(folder) and not Path(folder).is_dir():
        raise errors.UnwritableError(
            f"{Path(folder).parent}: an executor of Spark does not have this folder; name one that the "
            "driver and all executors share, like a mounted file system, /dbfs or /Volumes"
        )


def translate_error(error: Exception) -> Exception:
    """Convert the error of a failed Spark job to the error that an executor has raised.

    Returns:
        A StallscopeError; the error itself if it is a defect of a task.
    """
    text = str(error)
    own_error = _OWN_ERROR.search(text)
    kind = None if own_error is None else getattr(errors, own_error[1], None)
    if (
        own_error is not None
        and isinstance(kind, type)
        and issubclass(kind, errors.StallscopeError)
    ):
        return (
            errors.UnreadableError(own_error[2])
            if kind is errors.MissingExtraError
            else kind(own_error[2])
        )
    missing = _MISSING.search(text)
    if missing is not None:
        return errors.UsageError(f"an executor of Spark has no module {missing[1]!r}; {_NEEDED}")
    if "PYTHON_VERSION_MISMATCH" in text or "different version" in text:
        return errors.UsageError(f"executors have another Python than the driver; {_NEEDED}")
    resource_error = _RESOURCE_ERROR.search(text)
    if resource_error is not None:
        return _spark_error(": ".join(filter(None, resource_error.groups())))
    if _TRACEBACK in text:
        return error
    reason = _REASON.search(text)
    first = (text.strip().splitlines() or [type(error).__name__])[0]
    return _spark_error(first if reason is None else reason[1])


def _spark_error(reason: str) -> errors.UnreadableError:
    return errors.UnreadableError(
        f"Spark failed: {reason.strip().rstrip('.')}; read its log, give driver or executors more "
        "memory or disk if they need it, and run the same command again"
    )

"""What the user asked the recorder for."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple, Optional

from .sampling import Sampling
from .sinks import checked_sink
from .upload import mlflow_run_of


class Options(NamedTuple):
    """The arguments of StepLogger that every framework's has."""

    log_dir: Path
    run_name: Optional[str]
    synthetic: bool
    batch_size: Optional[int]
    flush_seconds: float
    stages: bool
    #: The MLflow run that logs are uploaded to.
    mlflow_run_id: Optional[str] = None
    #: Where the log goes: a file, records of Python's logging, or both.
    sink: str = "file"
    #: Which steps are recorded in full; None: all of them.
    sampling: Optional[Sampling] = None
    #: A log that has reached it goes on in another file; None: none does.
    max_file_bytes: Optional[int] = None


def checked(
    log_dir: Any,
    *,
    run_name: Optional[str],
    synthetic: bool,
    batch_size: Optional[int],
    mlflow_run_id: Optional[str],
    sink: str,
    flush_seconds: float,
    stages: bool,
    sample_after: Optional[int] = None,
    sample_one_in: int = 20,
    max_file_mb: Optional[float] = None,
) -> Options:
    """The arguments, looked at while a mistake may still stop the program.

    Raises:
        TypeError, ValueError: for arguments that cannot be meant.
    """
    checked_sink(sink)
    if log_dir is None and sink == "logging":
        # Sessions of one process go on with their run, which is known by its folder.
        log_dir = "."
    # An empty name, as of a variable that is not set, would be the folder that training runs in.
    if not isinstance(log_dir, (str, os.PathLike)) or log_dir == "":
        raise TypeError("log_dir is the folder for the logs, not %r" % (log_dir,))
    if batch_size is not None and batch_size < 1:
        raise ValueError("batch_size is a number of samples, not %r" % (batch_size,))
    if mlflow_run_id is not None and not isinstance(mlflow_run_id, str):
        raise TypeError("mlflow_run_id is the id of an MLflow run, not %r" % (mlflow_run_id,))
    if not flush_seconds > 0:
        raise ValueError("flush_seconds is a time above 0, not %r" % (flush_seconds,))
    if max_file_mb is not None and not max_file_mb > 0:
        raise ValueError("max_file_mb is a size above 0, not %r" % (max_file_mb,))
    return Options(
        log_dir=Path(log_dir).absolute(),
        run_name=run_name,
        synthetic=bool(synthetic),
        batch_size=batch_size,
        flush_seconds=float(flush_seconds),
        stages=bool(stages),
        mlflow_run_id=mlflow_run_of(mlflow_run_id),
        sink=sink,
        sampling=_sampling(sample_after, sample_one_in),
        max_file_bytes=None if max_file_mb is None else max(1, int(max_file_mb * 1e6)),
    )


def _sampling(sample_after: Optional[int], sample_one_in: int) -> Optional[Sampling]:
    if not isinstance(sample_one_in, int) or sample_one_in < 1:
        raise ValueError("sample_one_in is a number of steps, not %r" % (sample_one_in,))
    if sample_after is None:
        return None
    if not isinstance(sample_after, int) or sample_after < 0:
        raise ValueError("sample_after is a number of steps, not %r" % (sample_after,))
    return Sampling(sample_after, sample_one_in)

"""Start a process on rank 0 that appends the step time to TensorBoard, W&B or MLflow."""

from __future__ import annotations

import atexit
import logging
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Dict, List, Tuple

from .own_program import program

logger = logging.getLogger("stallscope")

FORMATS = ("tensorboard", "wandb", "mlflow")
#: How long the end of the program is delayed at most, for the last points.
PATIENCE_SECONDS = 10.0
# The app needs a newer Python than the recorder.
_PYTHON_OF_THE_APP = (3, 11)

# By run and place: the process, and its errors.
_followers: Dict[Tuple[str, str], Tuple["subprocess.Popen[bytes]", Any]] = {}
# The process that has started them: a forked one inherits all this.
_pid = None


def check_scalars(scalars: Any) -> Tuple[str, str]:
    """Return the format and the place of an option such as ``tensorboard:runs/run-42``.

    Raises:
        TypeError, ValueError: if it is invalid.
    """
    if not isinstance(scalars, str):
        raise TypeError("scalars is text such as 'tensorboard:runs/run-42', not %r" % (scalars,))
    name, _, place = scalars.partition(":")
    if name not in FORMATS or not place:
        raise ValueError(
            "scalars is tensorboard:FOLDER, wandb:FOLDER or mlflow:RUN_ID, not %r" % scalars
        )
    # A folder may be relative to the current one, which may change.
    return name, scalars if name == "mlflow" else str(Path(place).absolute())


def begin(log_dir: Path, run_id: str, scalars: Tuple[str, str]) -> None:
    """Follow a run, unless this process does already. Never raises."""
    global _pid
    source = "%s#%s" % (log_dir, run_id)
    try:
        if _pid != os.getpid():
            _pid = os.getpid()
            _followers.clear()
            atexit.register(_end_all)
        key = (source, scalars[1])
        running = _followers.get(key)
        if running is not None and running[0].poll() is None:
            return
        if sys.version_info < _PYTHON_OF_THE_APP:
            raise OSError("this needs Python 3.11 or later")
        errors = tempfile.TemporaryFile()  # noqa: SIM115  # read at the end
        process = subprocess.Popen(
            program("stallscope.cli.following_training", *scalars, source, str(_pid)),
            # Its end tells the process that training has ended.
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            # Signals to the ranks and keys in the terminal must not end it.
            start_new_session=True,
        )
        _followers[key] = process, errors
    except Exception as error:  # no error may reach training
        _warn(str(error))


def _end_all() -> None:
    """Ask all processes for their last points, and end those that take too long."""
    if os.getpid() != _pid:
        return
    try:
        running = [process for process, _ in _followers.values() if process.poll() is None]
        for process in running:
            if process.stdin is not None:
                process.stdin.close()
        deadline = time.monotonic() + PATIENCE_SECONDS
        for process in running:
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                _warn("the last points were not written within %g s" % PATIENCE_SECONDS)
        for process, errors in _followers.values():
            if process.poll():
                _warn(_reason(errors) or "its process ended with status %d" % process.returncode)
    except (Exception, KeyboardInterrupt):  # scalars must not change the program's result
        pass


def _reason(errors: Any) -> str:
    """Return the last line of the errors."""
    errors.seek(0)
    lines: List[str] = errors.read().decode("utf-8", "replace").splitlines()
    return lines[-1].replace("stallscope: ", "") if lines else ""


def _warn(reason: str) -> None:
    logger.warning("stallscope: scalars: %s; training and its log are not affected", reason)

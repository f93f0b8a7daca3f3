"""Upload logs to an MLflow run, from a separate process.

The recorder imports the standard library only and waits for no server. So it starts another process,
``stallscope.collector.mlflow.process``, and sends it the logs' paths over a pipe. That process continues
when training is killed; when training ends normally, it gets some time to finish.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import subprocess
import threading
from pathlib import Path
from typing import Dict, List, Optional, Tuple

from .own_program import program

logger = logging.getLogger("stallscope")

#: Messages to the process: a log is being written; a log is complete; training is over.
WATCH = "watch"
ENDED = "ended"
OVER = "over"

# A container that ends with the process would lose what was not sent: wait a moment.
_LAST_UPLOAD_SECONDS = 30.0
# Time between the process's last message and its exit.
_EXIT_SECONDS = 1.0

_uploaders: Dict[str, "_Uploader"] = {}
# By folder: the MLflow run of its logs, and files that came before any log.
_runs: Dict[Path, str] = {}
_companion_files: Dict[Path, List[Path]] = {}
_lock = threading.Lock()


def mlflow_run_of(given: Optional[str]) -> Optional[str]:
    """Return the MLflow run for the logs: the given one, or MLFLOW_RUN_ID's."""
    return given or os.environ.get("MLFLOW_RUN_ID") or None


def start_scalars(
    log_dir: Path, run_id: str, scalars: Optional[Tuple[str, str]], rank: int
) -> None:
    """Start the process that shows step times while training runs, if rank 0 wants one."""
    if scalars is not None and rank == 0:
        from . import live_scalars

        live_scalars.begin(log_dir, run_id, scalars)


def watch(log: Path, run_id: str) -> None:
    """Upload a log while it grows, and its companion files. Never raises."""
    _send_watch(log, run_id)
    _runs[log.parent] = run_id
    for file in _companion_files.pop(log.parent, []):
        upload_companion_file(file)


def _send_watch(file: Path, run_id: str) -> None:
    try:
        with _lock:
            uploader = _uploaders.get(run_id)
            # A forked process inherits its parent's uploader and must not write to it.
            if uploader is None or uploader.pid != os.getpid():
                uploader = _uploaders[run_id] = _Uploader(run_id)
            uploader.send(WATCH, file)
    except Exception as error:
        logger.warning(
            "stallscope: logs are not uploaded to MLflow's run %s: %s; training goes on",
            run_id,
            error,
        )


def finish(log: Path, run_id: str) -> None:
    """Note that a log is complete. Never raises and does not wait."""
    uploader = _uploaders.get(run_id)
    if uploader is not None and uploader.pid == os.getpid():
        uploader.send(ENDED, log)


def upload_companion_file(file: Path) -> None:
    """Upload a file that does not grow with the logs of its folder, now or once there are any."""
    run_id = _runs.get(file.parent)
    if run_id is None:
        _companion_files.setdefault(file.parent, []).append(file)
    else:
        _send_watch(file, run_id)
        finish(file, run_id)


class _Uploader:
    """The process that uploads to one run."""

    def __init__(self, run_id: str) -> None:
        self.pid = os.getpid()
        self._process = subprocess.Popen(
            program("stallscope.collector.mlflow.process", run_id),
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            # Signals to the ranks and keys in the terminal must not end it.
            start_new_session=True,
        )
        self._run_id = run_id
        self._listener = threading.Thread(
            target=self._listen, name="stallscope-upload", daemon=True
        )
        self._listener.start()
        # Registered before the sessions of its logs: those close first.
        atexit.register(self._finish)

    def send(self, message: str, log: Optional[Path] = None) -> None:
        try:
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps([message, str(log)]).encode() + b"\n")
        except (OSError, ValueError):
            # It has ended and reported why.
            pass

    def _listen(self) -> None:
        """Log its messages until it ends, or until waiting for it is useless."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            logger.warning("stallscope: %s", line.decode(errors="replace").rstrip())
        try:
            status = self._process.wait(_EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            return
        if status:
            logger.warning(
                "stallscope: the upload to MLflow's run %s has ended with status %d; training goes on",
                self._run_id,
                status,
            )

    def _finish(self) -> None:
        """Wait for the last upload after training, for a limited time."""
        if os.getpid() != self.pid:
            return
        # The end of the pipe is not enough: a forked worker may keep it open.
        self.send(OVER)
        self._listener.join(timeout=_LAST_UPLOAD_SECONDS)

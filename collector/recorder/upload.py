"""Logs on their way to an MLflow run, by a process of their own.

The recorder imports the standard library only and waits for no server. So it starts another process,
``stallscope.collector.mlflow.process``, and tells it over a pipe which logs there are. That one goes
on when training is killed; where training ends by itself, the end of the process waits a while for it.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Dict, List, Optional

logger = logging.getLogger("stallscope")

#: What the other process is told: a log is written from now on; it is complete; training is over.
WATCH = "watch"
ENDED = "ended"
OVER = "over"

# What a container takes with it when the process ends is not to be lost for want of a moment.
_PATIENCE_SECONDS = 30.0
# Between the last word of the other process and its end.
_REAP_SECONDS = 1.0

# It finds what training finds, whichever way that came onto the path.
_PROGRAM = """\
import json, sys
sys.path[:] = json.loads(sys.argv.pop())
from stallscope.collector.mlflow.process import main
main()
"""

_uploaders: Dict[str, "_Uploader"] = {}
# By folder: the MLflow run that its logs go to, and files that came before any of them.
_runs: Dict[Path, str] = {}
_beside: Dict[Path, List[Path]] = {}
_lock = threading.Lock()


def mlflow_run_of(given: Optional[str]) -> Optional[str]:
    """The MLflow run that logs go to: the one that was given, or MLFLOW_RUN_ID's."""
    return given or os.environ.get("MLFLOW_RUN_ID") or None


def watch(log: Path, run_id: str) -> None:
    """From now on, upload what is written to a log, and what lies beside it. Never raises."""
    _tell_of(log, run_id)
    _runs[log.parent] = run_id
    for file in _beside.pop(log.parent, []):
        lies_beside_logs(file)


def _tell_of(file: Path, run_id: str) -> None:
    try:
        with _lock:
            uploader = _uploaders.get(run_id)
            # A forked process has its parent's, which must not hear of it.
            if uploader is None or uploader.pid != os.getpid():
                uploader = _uploaders[run_id] = _Uploader(run_id)
            uploader.tell(WATCH, file)
    except Exception as error:
        logger.warning(
            "stallscope: logs are not uploaded to MLflow's run %s: %s; training goes on",
            run_id,
            error,
        )


def ended(log: Path, run_id: str) -> None:
    """A log is complete. Never raises, and does not wait."""
    uploader = _uploaders.get(run_id)
    if uploader is not None and uploader.pid == os.getpid():
        uploader.tell(ENDED, log)


def lies_beside_logs(file: Path) -> None:
    """A file that does not grow goes where the logs of its folder go, now or when there are any."""
    run_id = _runs.get(file.parent)
    if run_id is None:
        _beside.setdefault(file.parent, []).append(file)
    else:
        _tell_of(file, run_id)
        ended(file, run_id)


class _Uploader:
    """The process that uploads to one run."""

    def __init__(self, run_id: str) -> None:
        self.pid = os.getpid()
        paths = [path for path in sys.path if isinstance(path, str)]
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, run_id, json.dumps(paths)],
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            # What ends the ranks, or a key in the terminal, is not for it.
            start_new_session=True,
        )
        self._run_id = run_id
        self._listener = threading.Thread(
            target=self._listen, name="stallscope-upload", daemon=True
        )
        self._listener.start()
        # Before any session of its logs is registered: those are to be closed first.
        atexit.register(self._finish)

    def tell(self, word: str, log: Optional[Path] = None) -> None:
        try:
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps([word, str(log)]).encode() + b"\n")
        except (OSError, ValueError):
            # It has ended, and has said why.
            pass

    def _listen(self) -> None:
        """Pass on what it says; that ends when it ends, or when waiting for it is of no use."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            logger.warning("stallscope: %s", line.decode(errors="replace").rstrip())
        try:
            status = self._process.wait(_REAP_SECONDS)
        except subprocess.TimeoutExpired:
            return
        if status:
            logger.warning(
                "stallscope: the upload to MLflow's run %s has ended with status %d; training goes on",
                self._run_id,
                status,
            )

    def _finish(self) -> None:
        """Training is over: wait for the last upload, but not for ever."""
        if os.getpid() != self.pid:
            return
        # In so many words: a forked worker may keep the pipe open.
        self.tell(OVER)
        self._listener.join(timeout=_PATIENCE_SECONDS)

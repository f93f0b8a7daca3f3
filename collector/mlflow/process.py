"""Upload a rank's growing step logs, in a process next to training.

The recorder starts the process, sends it the names of logs over standard input, one JSON array per
line, and logs its output as warnings. Uploads start after seconds and become less frequent, at times
that differ by rank (``recorder/step_log/rate_limits.py``). A run of ten hours sends less than fifty
requests per rank. When the input ends, or the parent process is gone, training is over: the process
uploads the rest and ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import shlex
import sys
import threading
import time
from functools import partial
from pathlib import Path

from stallscope.errors import MissingExtraError, StallscopeError

from ..recorder.step_log.line_format import SUFFIX, header_facts
from ..recorder.step_log.log_files import (
    FIRST_UPLOAD_REQUESTS,
    FIRST_UPLOAD_SECONDS,
    LONGEST_LAST_TURN_SECONDS,
    UPLOAD_SECONDS,
    next_pause_seconds,
    turn_seconds,
)
from ..recorder.subprocesses import ENDED, OVER, WATCH
from .client import MlflowRun
from .log_upload import LogUpload

# Logs that have ended are uploaded after this time, unless the next fit starts before.
_IDLE_SECONDS = 3.0
# How often to check for the training process, because forked workers may keep its pipe open.
_CHECK_SECONDS = 5.0
# How long to retry when training is over and the server is down.
_LAST_RETRY_SECONDS = 600.0
# The lowest priority on the host.
_NICENESS = 19
# If the server does not respond in this time, the next upload tries again. No statistics are sent.
_SETTINGS = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "30",
}


def main() -> None:
    """Run until training is over; the run's id is the only argument."""
    with contextlib.suppress(AttributeError, OSError):  # Windows, or a sandbox
        os.nice(_NICENESS)
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)
    Uploader(sys.argv[1], Training()).run()


class Training:
    """Messages from the training process, and whether it has ended."""

    def __init__(self) -> None:
        self.over = False
        self._parent = os.getppid()
        self._messages: queue.Queue[list[str] | None] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()

    def next_message(self, until: float) -> list[str] | None:
        """Return the next message; None at the time ``until``, or when training is over."""
        while True:
            remaining = until - time.monotonic()
            try:
                message = self._messages.get(timeout=min(max(remaining, 0.0), _CHECK_SECONDS))
            except queue.Empty:
                self.over = os.getppid() != self._parent
                if self.over or remaining <= 0:
                    return None
                continue
            self.over = message is None
            return message

    def _listen(self) -> None:
        try:
            for line in sys.stdin.buffer:
                message = json.loads(line)
                if message[0] == OVER:
                    return
                self._messages.put(message)
        finally:
            self._messages.put(None)


class Uploader:
    """Uploads the logs of one process to one run."""

    def __init__(self, run_id: str, training: Training) -> None:
        self._run_id = run_id
        self._training = training
        self._run: MlflowRun | None = None
        self._logs: dict[Path, LogUpload] = {}
        self._open: set[Path] = set()
        self._error_log: Path | None = None
        self._error = ""
        # Rank and size, as for a single rank until a log has them.
        self._rank, self._size = 0, 1
        self._pause = FIRST_UPLOAD_SECONDS
        self._start = time.monotonic()
        self._due = self._start + self._pause
        self._upload_ended_at: float | None = None

    def run(self) -> None:
        """Upload until training is over, then upload the rest."""
        try:
            while not self._training.over:
                message = self._training.next_message(
                    min(self._due, self._upload_ended_at or self._due)
                )
                if message is not None:
                    self._handle(*message)
                elif not self._training.over:
                    self._upload_regularly()
            self._upload_remaining()
        except MissingExtraError:
            send(
                f"mlflow is not installed, so logs are not uploaded to run {self._run_id}: "
                "pip install mlflow-skinny"
            )

    def _handle(self, kind: str, text: str) -> None:
        path = Path(text)
        if kind == WATCH:
            self._logs[path] = LogUpload(path.name, partial(_read, path))
            self._open.add(path)
            # Measurements of input come the same way, and are not step logs.
            if self._error_log is None and path.name.endswith(SUFFIX):
                self._error_log = path.with_name(path.name[: -len(SUFFIX)] + ".upload.log")
                self._take_turn(path)
            self._upload_ended_at = None
        elif kind == ENDED:
            self._open.discard(path)
            if not self._open:
                self._upload_ended_at = time.monotonic() + _IDLE_SECONDS + self._last_turn()

    def _take_turn(self, path: Path) -> None:
        """Delay the first upload by rank, because all ranks start together."""
        with contextlib.suppress(OSError, ValueError):
            with path.open("rb") as file:
                facts = header_facts(file.readline())
            self._rank, self._size = int(facts.get("rank", 0)), int(facts.get("size", 1))
        self._due += turn_seconds(self._rank, self._size, FIRST_UPLOAD_REQUESTS)

    def _last_turn(self) -> float:
        """Return the delay of the last upload, because all ranks end together."""
        return min(turn_seconds(self._rank, self._size), LONGEST_LAST_TURN_SECONDS)

    def _upload_regularly(self) -> None:
        reported = bool(self._error)
        if not self._upload(whole_lines=True) and not reported:
            send(f"{self._error}; uploads are retried during training")
        self._upload_ended_at = None
        now = time.monotonic()
        if now >= self._due:
            self._pause = next_pause_seconds(self._pause, now - self._start, self._size)
            self._due = now + self._pause

    def _upload_remaining(self) -> None:
        turn = self._last_turn()
        if turn:
            time.sleep(turn)
        give_up = time.monotonic() + _LAST_RETRY_SECONDS
        pause = FIRST_UPLOAD_SECONDS + turn
        if self._upload(whole_lines=False):
            return
        folders = " ".join(sorted({shlex.quote(str(path.parent)) for path in self._logs}))
        count = len(self._logs)
        logs = "1 log is" if count == 1 else f"{count} logs are"
        send(
            f"{self._error}; {logs} not uploaded completely: "
            f"stallscope collect {folders} --to mlflow:{self._run_id} uploads the rest"
        )
        _close_output()
        # Only mlflow may be installed, so no library can do these retries.
        while time.monotonic() + pause < give_up:
            time.sleep(pause)
            if self._upload(whole_lines=False):
                return
            pause = min(2 * pause, UPLOAD_SECONDS)

    def _upload(self, whole_lines: bool) -> bool:
        """Upload new bytes, and forget logs that have ended; return whether it succeeded."""
        try:
            if self._run is None:
                self._run = MlflowRun(self._run_id, user_waits=False)
            for path, log in list(self._logs.items()):
                # The log may have been removed.
                if path.exists():
                    # The last line of a log that has ended is final.
                    log.upload_new(self._run, whole_lines and path in self._open)
                if path not in self._open or not path.exists():
                    del self._logs[path]
        except MissingExtraError:
            raise
        except (StallscopeError, OSError) as error:
            self._error = str(error)
            self._log_error(self._error)
            return False
        return True

    def _log_error(self, error_message: str) -> None:
        """Write an error to the log, for reading after training."""
        if self._error_log is not None:
            with contextlib.suppress(OSError), self._error_log.open("a") as file:
                file.write(f"{time.strftime('%Y-%m-%dT%H:%M:%S%z')} {error_message}\n")


def send(text: str) -> None:
    """Send a message to the training process, which logs it; ignore it if that has ended."""
    with contextlib.suppress(OSError):
        print(text, flush=True)


def _close_output() -> None:
    """Close the output, because the training process waits for it."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)


def _read(path: Path, start: int, end: int) -> bytes:
    with path.open("rb") as file:
        file.seek(start)
        return file.read(end - start)

"""The process beside training that uploads a rank's step logs while they grow.

The recorder starts it, tells it over standard input which logs there are, one JSON array per line, and
passes on as a warning what it prints. It wakes seldom: first after seconds, then ever later, and in its
rank's turn (``recorder/budgets.py``), so that a run of ten hours asks the server less than fifty times
per rank. When its input ends, or the process that started it is gone, training is over: it uploads the
rest and ends.
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

from ..recorder.format import SUFFIX, header_facts
from ..recorder.rate_limits import (
    FIRST_UPLOAD_REQUESTS,
    FIRST_UPLOAD_SECONDS,
    LONGEST_LAST_TURN_SECONDS,
    UPLOAD_SECONDS,
    next_pause_seconds,
    turn_seconds,
)
from ..recorder.upload import ENDED, OVER, WATCH
from .chunks import LogUpload
from .client import MlflowRun

# What has ended is uploaded at once, unless the next fit begins by then.
_CALM_SECONDS = 3.0
# How often to look whether the training process is there: forked workers may keep its pipe open.
_LOOK_SECONDS = 5.0
# How long to go on trying when training is over and the server is not there.
_LAST_PATIENCE_SECONDS = 600.0
# Behind everything else that runs on the host.
_NICENESS = 19
# A server that does not answer by then is asked again with the next upload.
_SETTINGS = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1", "MLFLOW_HTTP_REQUEST_TIMEOUT": "30"}


def main() -> None:
    """Run until training is over; the run's id is the only argument."""
    with contextlib.suppress(AttributeError, OSError):  # Windows, or a sandbox
        os.nice(_NICENESS)
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)
    Uploading(sys.argv[1], Training()).run()


class Training:
    """What the training process says, and whether it is still there."""

    def __init__(self) -> None:
        self.over = False
        self._parent = os.getppid()
        self._words: queue.Queue[list[str] | None] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()

    def next_word(self, until: float) -> list[str] | None:
        """The next thing it says; None when that time has come, or when training is over."""
        while True:
            left = until - time.monotonic()
            try:
                word = self._words.get(timeout=min(max(left, 0.0), _LOOK_SECONDS))
            except queue.Empty:
                self.over = os.getppid() != self._parent
                if self.over or left <= 0:
                    return None
                continue
            self.over = word is None
            return word

    def _listen(self) -> None:
        try:
            for line in sys.stdin.buffer:
                word = json.loads(line)
                if word[0] == OVER:
                    return
                self._words.put(word)
        finally:
            self._words.put(None)


class Uploading:
    """The logs of one process on their way to one run."""

    def __init__(self, run_id: str, training: Training) -> None:
        self._run_id = run_id
        self._training = training
        self._run: MlflowRun | None = None
        self._logs: dict[Path, LogUpload] = {}
        self._open: set[Path] = set()
        self._diary: Path | None = None
        self._trouble = ""
        # Rank and size; until a log has told them, those of one rank alone.
        self._rank, self._size = 0, 1
        self._pause = FIRST_UPLOAD_SECONDS
        self._begun = time.monotonic()
        self._due = self._begun + self._pause
        self._calm: float | None = None

    def run(self) -> None:
        """Upload until training is over, and then what is left."""
        try:
            while not self._training.over:
                word = self._training.next_word(min(self._due, self._calm or self._due))
                if word is not None:
                    self._heed(*word)
                elif not self._training.over:
                    self._upload_regularly()
            self._upload_the_rest()
        except MissingExtraError:
            say(
                f"mlflow is not installed here, so logs are not uploaded to run {self._run_id}: "
                "pip install mlflow-skinny"
            )

    def _heed(self, word: str, text: str) -> None:
        path = Path(text)
        if word == WATCH:
            self._logs[path] = LogUpload(path.name, partial(_read, path))
            self._open.add(path)
            # What was measured of loaders comes the same way, and is no step log.
            if self._diary is None and path.name.endswith(SUFFIX):
                self._diary = path.with_name(path.name[: -len(SUFFIX)] + ".upload.log")
                self._take_turn(path)
            self._calm = None
        elif word == ENDED:
            self._open.discard(path)
            if not self._open:
                self._calm = time.monotonic() + _CALM_SECONDS + self._last_turn()

    def _take_turn(self, path: Path) -> None:
        """Ranks begin together: each waits for its turn, and keeps the distance from then on."""
        with contextlib.suppress(OSError, ValueError):
            with path.open("rb") as file:
                facts = header_facts(file.readline())
            self._rank, self._size = int(facts.get("rank", 0)), int(facts.get("size", 1))
        self._due += turn_seconds(self._rank, self._size, FIRST_UPLOAD_REQUESTS)

    def _last_turn(self) -> float:
        """How long to wait where all ranks have come to an end."""
        return min(turn_seconds(self._rank, self._size), LONGEST_LAST_TURN_SECONDS)

    def _upload_regularly(self) -> None:
        told = bool(self._trouble)
        if not self._upload(whole_lines=True) and not told:
            say(f"{self._trouble}; it is tried again while training goes on")
        self._calm = None
        now = time.monotonic()
        if now >= self._due:
            self._pause = next_pause_seconds(self._pause, now - self._begun, self._size)
            self._due = now + self._pause

    def _upload_the_rest(self) -> None:
        turn = self._last_turn()
        if turn:
            time.sleep(turn)
        give_up = time.monotonic() + _LAST_PATIENCE_SECONDS
        pause = FIRST_UPLOAD_SECONDS + turn
        if self._upload(whole_lines=False):
            return
        folders = " ".join(sorted({shlex.quote(str(path.parent)) for path in self._logs}))
        say(
            f"{self._trouble}; {len(self._logs)} log(s) are not uploaded in full: "
            f"stallscope collect {folders} --to mlflow:{self._run_id} does it later"
        )
        _let_go()
        # No library for this loop: beside training there may be nothing but mlflow.
        while time.monotonic() + pause < give_up:
            time.sleep(pause)
            if self._upload(whole_lines=False):
                return
            pause = min(2 * pause, UPLOAD_SECONDS)

    def _upload(self, whole_lines: bool) -> bool:
        """Whether the run has everything now; what has ended is forgotten then."""
        try:
            if self._run is None:
                self._run = MlflowRun(self._run_id)
            for path, log in list(self._logs.items()):
                # It may have been removed.
                if path.exists():
                    # What has ended has nothing to come: its last line is as whole as it gets.
                    log.upload_new(self._run, whole_lines and path in self._open)
                if path not in self._open or not path.exists():
                    del self._logs[path]
        except MissingExtraError:
            raise
        except (StallscopeError, OSError) as error:
            self._trouble = str(error)
            self._note(self._trouble)
            return False
        return True

    def _note(self, trouble: str) -> None:
        """For those who look for the reason when the training process is long gone."""
        if self._diary is not None:
            with contextlib.suppress(OSError), self._diary.open("a") as file:
                file.write(f"{time.strftime('%Y-%m-%dT%H:%M:%S%z')} {trouble}\n")


def say(text: str) -> None:
    """Send to the training process, which logs it; dropped if that is gone."""
    with contextlib.suppress(OSError):
        print(text, flush=True)


def _let_go() -> None:
    """The training process waits for what is said here: that was all."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)


def _read(path: Path, begin: int, end: int) -> bytes:
    with path.open("rb") as file:
        file.seek(begin)
        return file.read(end - begin)

"""Registers and runs the cases of a training program, each with a folder of its own.

Programs import this module from beside them: it runs on Python 3.8, with the standard library only.
"""

from __future__ import annotations

import contextlib
import json
import logging
import resource
import signal
import time
import traceback
from pathlib import Path
from typing import Any, Callable, Dict, Iterator

#: How long rank 0 waits for rank 1 in a reduction.
_WAITING_SECONDS = 2.0


class Cases(Dict[str, Callable[[Any], Any]]):
    """The cases of a program by name, in the order in which they run."""

    def add(self, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Add a case; works as a decorator."""
        self[function.__name__] = function
        return function


class Messages(logging.Handler):
    """Collects what the recorder logs, as level and message."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[tuple[str, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append((record.levelname, record.getMessage()))

    @classmethod
    def of_the_recorder(cls) -> Messages:
        """Collect from now on."""
        messages = cls()
        logging.getLogger("stallscope").addHandler(messages)
        return messages


def run_case(
    function: Callable[[Any], Any], case: Any, folder: Path, rank: int, messages: Messages
) -> None:
    """Run a case and write its result and what was logged, or the error that it raised."""
    messages.records.clear()
    try:
        result = json.dumps({**function(case), "logged": messages.records})
    except BaseException:
        (folder / f"error-{rank}.txt").write_text(traceback.format_exc())
        return
    (folder / f"result-{rank}.json").write_text(result)


def waiting_seconds(reduce: Callable[[], Any], rank: int) -> dict[str, float]:
    """Return how long rank 0 waits in a reduction for rank 1, and its thread's CPU time meanwhile."""
    # Connecting and tracing are over after the first one.
    reduce()
    if rank == 1:
        time.sleep(_WAITING_SECONDS)
    began, used = time.monotonic(), time.thread_time()
    reduce()
    return {
        "waited_seconds": time.monotonic() - began,
        "cpu_seconds": time.thread_time() - used,
    }


@contextlib.contextmanager
def full_disk(size: int) -> Iterator[None]:
    """Let no file of this process grow beyond a size: what a full disk is to a program that writes."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

"""Register and run the cases of a training program, each with its own folder.

Programs import this module from their folder: it runs on Python 3.8, with the standard library only.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import json
import logging
import os
import resource
import signal
import threading
import time
import traceback
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, Iterator, Sequence

#: How often samples are repeated in each of an epoch's 12 batches, for batches of different sizes.
REPEATED = (2, 2, 2, 3, 3, 2, 5, 5, 2, 3, 2, 2)

#: How long rank 0 waits for rank 1 in a reduction.
_WAITING_SECONDS = 2.0
# The garbage collector takes milliseconds to look at so many objects.
_OBJECTS, _COLLECT_EVERY_SECONDS = 100_000, 0.03


class Cases(Dict[str, Callable[[Any], Any]]):
    """The cases of a program by name, in the order in which they run."""

    def add(self, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Add a case; works as a decorator."""
        assert function.__name__ not in self, f"there are two cases {function.__name__}"
        self[function.__name__] = function
        return function


class Messages(logging.Handler):
    """Collects what the recorder logs, as level and message."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[tuple[str, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append((record.levelname, record.getMessage()))


#: The recorder's messages in the current case.
MESSAGES = Messages()


def run_cases(
    cases: Cases,
    out: Path,
    names: Sequence[str],
    rank: int,
    make: Callable[[Path], Any] = Path,
) -> None:
    """Run cases, each with a folder below ``out``; all of them if none is named.

    ``out/CASE/result-RANK.json`` has the result of a case and the recorder's messages,
    ``out/CASE/error-RANK.txt`` the error that it raised.

    Args:
        cases: the program's cases.
        out: for their folders.
        names: of the cases to run. Those in the variable ``LEFT_OUT`` never run.
        rank: of this process.
        make: makes the argument of a case from its folder.
    """
    logging.getLogger("stallscope").addHandler(MESSAGES)
    left_out = os.environ.get("LEFT_OUT", "").split()
    for name in [name for name in names or cases if name not in left_out]:
        folder = out / name
        folder.mkdir(parents=True, exist_ok=True)
        if rank == 0:
            print(f"case {name}", flush=True)
        MESSAGES.records.clear()
        try:
            with _collecting(name) as collections:
                result = cases[name](make(folder))
            result = json.dumps({**result, "collections": collections, "logged": MESSAGES.records})
        except BaseException:
            (folder / f"error-{rank}.txt").write_text(traceback.format_exc())
        else:
            (folder / f"result-{rank}.json").write_text(result)


def collects(name: str) -> bool:
    """Whether a thread collects garbage during a case."""
    return name.endswith(("slow_input", "below_trainer", "one_process"))


@contextlib.contextmanager
def _collecting(name: str) -> Iterator[list[list[int]]]:
    """Let a thread collect garbage during some cases, and time that."""
    ended = threading.Event()
    times: list[list[int]] = []

    def collect() -> None:
        while not ended.wait(_COLLECT_EVERY_SECONDS):
            # Young objects only: a collection of all takes a second where cores are busy.
            gc.disable()
            objects = [[number] for number in range(_OBJECTS)]
            began = time.monotonic_ns()
            gc.collect(0)
            times.append([began, time.monotonic_ns()])
            gc.enable()
            objects.clear()

    thread = threading.Thread(target=collect)
    if collects(name):
        thread.start()
    try:
        yield times
    finally:
        ended.set()
        if thread.ident is not None:
            thread.join()


class Stopwatch:
    """Reads the time once in each iteration of a training."""

    def __init__(self) -> None:
        self.times: list[int] = []

    def read(self, *_: Any) -> None:
        self.times.append(time.monotonic_ns())

    def watch(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Read the time when the training gets each batch."""
        for batch in batches:
            self.read()
            yield batch


def raised_by(train: Callable[[], Any]) -> str:
    """Return the exception of a training, which must raise, as code."""
    try:
        train()
    except Exception as error:
        return repr(error)
    raise AssertionError("the training did not raise")


def digest(arrays: Iterable[Any]) -> str:
    """Return a digest of weights, which are numpy arrays."""
    return hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest()


def waiting_seconds(reduce: Callable[[], Any], rank: int) -> dict[str, float]:
    """Return how long rank 0 waits in a reduction for rank 1, and what its thread does meanwhile.

    That is its CPU time, and how often it leaves its core.
    """
    # The first one connects the ranks and traces graphs.
    reduce()
    if rank == 1:
        time.sleep(_WAITING_SECONDS)
    began, used, switches = time.monotonic(), time.thread_time(), thread_switches()
    reduce()
    return {
        "waited_seconds": time.monotonic() - began,
        "cpu_seconds": time.thread_time() - used,
        "switches": thread_switches() - switches,
    }


def thread_switches() -> int:
    """Return how often this thread has left its core, as it waited or as another one wanted it."""
    usage = resource.getrusage(resource.RUSAGE_THREAD)
    return usage.ru_nvcsw + usage.ru_nivcsw


@contextlib.contextmanager
def full_disk(size: int) -> Iterator[None]:
    """Limit the size of this process's files, so that writing fails as on a full disk."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

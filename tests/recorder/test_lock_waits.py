"""Waits of a training thread for Python's lock are seen, and nothing else is taken for them."""

from __future__ import annotations

import hashlib
import math
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from support.waiting import PATIENCE_SECONDS

from stallscope.collector.recorder import lock_looks, lock_waits
from stallscope.collector.recorder.interruptions import Interruptions
from stallscope.collector.recorder.lock_waits import LockWaits, TrainingThread
from stallscope.collector.recorder.step_log.line_format import InterruptionRow

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the kernel's states are Linux's")

LARGE, SMALL = b"x" * 20_000_000, b"x" * 100_000
#: Looks, and those that find a wait, that are enough to tell.
LOOKS, WAITS = 600, 200
#: How often lines are looked up at least.
LINES = 5


#: Trains beside a thread that does nothing, until the looks would have begun.
NOBODY_LOOKS = """
import threading, time
from stallscope.collector.recorder import lock_waits
lock_waits._IDLE_SECONDS = 0.01
training = lock_waits.TrainingThread(threading.get_ident(), threading.get_native_id())
waits = lock_waits.LockWaits(training, print, lambda: 7)
ended = threading.Event()
threading.Thread(target=ended.wait, name="idle").start()
waits.start()
checks = set()
while len(checks) < 10:
    sum(range(200_000))
    checks.add(waits._checked)
waits.stop()
ended.set()
print(waits._looks, "looks,", waits.fact())
"""

#: Trains beside a thread that keeps the lock, and prints the process that looks.
TRAINS_FOREVER = """
import threading, time
from stallscope.collector.recorder import lock_waits
lock_waits._IDLE_SECONDS = 0.01
training = lock_waits.TrainingThread(threading.get_ident(), threading.get_native_id())
waits = lock_waits.LockWaits(training, lambda row: None, lambda: 7)
def compute():
    while True:
        sum(range(1_000))
threading.Thread(target=compute, daemon=True).start()
waits.start()
while waits._waits < 3:
    sum(range(1_000))
print(waits._looker._process.pid, flush=True)
compute()
"""

#: Does not let other processes look, not even those of root.
NOT_TO_BE_SEEN = """
import ctypes, threading
from stallscope.collector.recorder import lock_waits
lock_waits._IDLE_SECONDS = 0.01
CAPABILITY_TO_TRACE, DROP_CAPABILITY, SET_DUMPABLE = 19, 24, 4
libc = ctypes.CDLL(None)
libc.prctl(DROP_CAPABILITY, CAPABILITY_TO_TRACE, 0, 0, 0)
libc.prctl(SET_DUMPABLE, 0, 0, 0, 0)
training = lock_waits.TrainingThread(threading.get_ident(), threading.get_native_id())
waits = lock_waits.LockWaits(training, print, lambda: 7)
ended = threading.Event()
def compute():
    while not ended.is_set():
        sum(range(1_000))
threading.Thread(target=compute).start()
waits.start()
waits._thread.join(60)
ended.set()
print(waits._thread.is_alive(), waits.is_on, waits.fact())
"""


@contextmanager
def running(name: str, work: Callable[[], object]) -> Iterator[None]:
    """Repeat work in a thread of this name."""
    stop = threading.Event()

    def repeat() -> None:
        while not stop.is_set():
            work()

    thread = threading.Thread(target=repeat, name=name)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def python_only() -> None:
    sum(number for number in range(200_000))


def outside_the_lock() -> None:
    hashlib.sha256(LARGE)


def train(has_enough: Callable[[], bool]) -> None:
    """Alternate work with and without the lock until there were enough looks."""
    until = time.monotonic() + PATIENCE_SECONDS
    while not has_enough():
        hashlib.sha256(SMALL)
        sum(range(1_000))
        assert time.monotonic() < until


@pytest.fixture
def rows() -> list[InterruptionRow]:
    return []


@pytest.fixture
def waits(rows: list[InterruptionRow], monkeypatch: pytest.MonkeyPatch) -> Iterator[LockWaits]:
    monkeypatch.setattr(lock_waits, "_IDLE_SECONDS", 0.01)
    training = TrainingThread(threading.get_ident(), threading.get_native_id())
    waits = LockWaits(training, rows.append, lambda: 7)
    waits.start()
    yield waits
    waits.stop()


@pytest.mark.broad
def test_a_thread_that_keeps_the_lock_is_found_with_its_line(
    waits: LockWaits, rows: list[InterruptionRow]
) -> None:
    with running("feeder", python_only), running("hasher", outside_the_lock):
        train(lambda: waits._waits >= WAITS and sum(waits._had_it.values()) >= LINES)
    assert waits.is_on
    assert {row.kind for row in rows} == {"interpreter"}
    assert {row.step for row in rows} == {7}
    assert all(0 < row.end - row.begin <= row.amount * lock_looks._LONGEST_NS for row in rows)
    fact = waits.fact()
    assert fact is not None
    assert fact["waits"] == sum(row.amount for row in rows)
    most = fact["threads"][0]
    assert (most["name"], most["file"]) == ("feeder", __file__)
    assert most["waits"] > 0.5 * sum(waits._had_it.values())


@pytest.mark.broad
def test_waits_take_as_long_as_the_kernel_says(
    waits: LockWaits, rows: list[InterruptionRow]
) -> None:
    """A training thread that never sleeps, by itself, sleeps only while it waits for the lock."""
    with running("feeder", python_only):
        train(lambda: bool(waits._looks))
        before, since = asleep_ns(), time.monotonic_ns()
        train(lambda: waits._looks >= LOOKS)
        slept, until = asleep_ns() - before, time.monotonic_ns()
        # The last reports.
        train(lambda: waits._latest is not None and waits._latest.at > until)
    within = [row for row in rows if since <= row.begin <= until]
    # Each wait is known but for the time between two looks, which is longer on busy cores. There they
    # are fewer just when training waits: the process that looks needs a core, too.
    error = math.sqrt(sum(((row.end - row.begin) / row.amount) ** 2 for row in within))
    waited = sum(row.end - row.begin for row in within)
    assert waited == pytest.approx(slept, abs=0.2 * slept + 4 * error)


def asleep_ns() -> int:
    """Return how long this thread has neither computed nor been ready to since some moment."""
    schedule = Path(f"/proc/self/task/{threading.get_native_id()}/schedstat").read_text()
    computed, ready, _ = map(int, schedule.split())
    return time.monotonic_ns() - computed - ready


@pytest.mark.broad
def test_threads_that_compute_without_the_lock_are_no_cause(
    waits: LockWaits, rows: list[InterruptionRow]
) -> None:
    """Not even if there are more of them than cores."""
    with ExitStack() as threads:
        for number in range(4):
            threads.enter_context(running(f"hasher {number}", outside_the_lock))
        train(lambda: bool(waits._looks))
        before, since = asleep_ns(), time.monotonic_ns()
        train(lambda: waits._looks >= LOOKS)
        asleep = (asleep_ns() - before) / (time.monotonic_ns() - since)
    # A thread that loses its core while it has the lock lets training wait, and the kernel knows that.
    assert sum(row.amount for row in rows) <= (0.2 + asleep) * waits._looks


def test_without_busy_threads_nobody_looks() -> None:
    """In a process of its own: other tests leave threads, such as those of servers."""
    program = [sys.executable, "-c", NOBODY_LOOKS]
    answer = subprocess.run(program, capture_output=True, text=True, timeout=PATIENCE_SECONDS)
    assert (answer.stdout, answer.stderr) == ("0 looks, None\n", "")


def test_the_process_that_looks_ends_with_training() -> None:
    program = [sys.executable, "-c", TRAINS_FOREVER]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as training:
        assert training.stdout is not None
        looker = Path(f"/proc/{int(training.stdout.readline())}")
        assert looker.exists()
        training.kill()
    until = time.monotonic() + PATIENCE_SECONDS
    while looker.exists():
        assert time.monotonic() < until
        time.sleep(0.01)


def test_a_process_that_must_not_be_seen_is_no_error() -> None:
    program = [sys.executable, "-c", NOT_TO_BE_SEEN]
    answer = subprocess.run(program, capture_output=True, text=True, timeout=PATIENCE_SECONDS)
    assert (answer.stdout, answer.stderr) == ("False False None\n", "")


def test_a_program_that_contains_python_is_not_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/usr/bin/editor")
    with pytest.raises(OSError, match="no program"):
        lock_waits._command(threading.get_native_id())


def test_a_system_without_such_states_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock_waits.platform, "machine", lambda: "other")
    training = TrainingThread(threading.get_ident(), threading.get_native_id())
    interruptions = Interruptions(lambda row: None, lambda: 0, training, looks=True)
    interruptions.start()
    assert interruptions._lock_waits is not None
    interruptions._lock_waits._thread.join(PATIENCE_SECONDS)
    assert "interpreter" not in interruptions.news().get("interruptions", [])
    interruptions.stop()


def test_the_log_says_that_waits_are_recorded() -> None:
    training = TrainingThread(threading.get_ident(), threading.get_native_id())
    interruptions = Interruptions(lambda row: None, lambda: 0, training, looks=True)
    interruptions.start()
    until = time.monotonic() + PATIENCE_SECONDS
    while "interpreter" not in interruptions.news().get("interruptions", []):
        assert time.monotonic() < until
        time.sleep(0.01)
    assert "interpreter" in interruptions.kinds
    interruptions.stop()

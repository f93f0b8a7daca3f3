"""Look at a thread from another process: does it wait for Python's lock, and which thread has that?

A thread of the same process takes the lock before it can look, and by then the wait is over. This
program needs no lock. The kernel tells in which system call a thread is, and a wait for the lock is a
futex inside of Python's own state. No signal is sent, and the threads do nothing for a look.

    python -I -S lock_looks.py PROCESS THREAD LOWEST_ADDRESS HIGHEST_ADDRESS FUTEX

Orders come on standard input: ``0`` to rest, or ``1`` and the threads that may have the lock. Reports go
to standard output: ``ready`` or ``denied`` after a first order to look, then lines of numbers, which
``lock_waits`` reads.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time

# It imports little, because each import costs every rank memory.

# The mean time between two looks. After so many of them the next ones come half as often, down to a few
# a second: much is known by then.
_PERIOD_NS, _MANY, _RAREST = 5_000_000, 4_000, 64
# A look stands for the time since the one before, which is longer where cores are busy, but not for
# that in which the process was suspended.
_LONGEST_NS = 1_000_000_000
# A wait that goes on is reported again after this time.
_AGAIN_NS = 100_000_000
# While it rests, it looks whether training has ended.
_REST_SECONDS = 1.0
_TEXT, _ORDER = 256, 1 << 16
#: What the kernel says of a thread that computes or is ready to.
_RUNNING = b"running"
READY, DENIED = "ready", "denied"


class Wait:
    """Looks, one after the other, that have found the thread waiting."""

    def __init__(self, number: int, at: int) -> None:
        #: Counts the waits.
        self.number = number
        #: The first look, in monotonic nanoseconds, and the last report.
        self.at = self.reported_at = at
        #: The number of looks, and the nanoseconds that they stand for, since the last report.
        self.looks = self.stands_for = 0


class Looker:
    """Looks at a thread at random moments.

    Args:
        process: whose threads they are.
        thread: the native identity of the thread to look at.
        lock: where Python's state begins and ends in memory.
        futex: the number of the system call.
    """

    def __init__(self, process: int, thread: int, lock: tuple[int, int], futex: bytes) -> None:
        self._folder = "/proc/%d/task" % process
        self._thread, self._lock, self._futex = thread, lock, futex
        self._others: list[int] = []
        #: Open files by thread.
        self._files: dict[int, int] = {}
        self._before = time.monotonic_ns()
        self._looks = self._waits = 0
        self._wait: Wait | None = None

    def start(self, others: list[int]) -> None:
        """Look from now on, with these threads as those that may have the lock.

        Raises:
            OSError: if this process may not look.
        """
        self._others = others
        for gone in self._files.keys() - {self._thread, *others}:
            os.close(self._files.pop(gone))
        self._state(self._thread)

    def restart(self) -> None:
        """Begin to count time again, after a rest."""
        self._before = time.monotonic_ns()

    @property
    def _period_ns(self) -> int:
        return _PERIOD_NS * min(1 << self._looks // _MANY, _RAREST)

    def pause(self) -> float:
        """Return the seconds until the next look, which are random."""
        share = 0.5 + int.from_bytes(os.urandom(2), "little") / (1 << 16)
        return self._period_ns * share / 1e9

    def look(self) -> str:
        """Look once, and return what to report; empty if there is nothing to report yet."""
        words = self._state(self._thread).split(None, 2)
        at = time.monotonic_ns()
        longest = max(_LONGEST_NS, 2 * self._period_ns)
        stands_for, self._before = min(at - self._before, longest), at
        self._looks += 1
        low, high = self._lock
        is_wait = len(words) > 2 and words[0] == self._futex and low <= int(words[1], 16) < high
        if not is_wait:
            ended, self._wait = self._wait, None
            return self._report(ended, []) if ended is not None and ended.looks else ""
        wait, is_new = self._wait, self._wait is None
        if wait is None:
            self._waits += 1
            wait = self._wait = Wait(self._waits, at)
        wait.looks += 1
        wait.stands_for += stands_for
        if not is_new and at - wait.reported_at < _AGAIN_NS:
            return ""
        wait.reported_at = at
        return self._report(wait, self._running())

    def _report(self, wait: Wait, running: list[int]) -> str:
        numbers = (wait.number, wait.at, wait.stands_for, wait.looks, self._looks, *running)
        wait.looks = wait.stands_for = 0
        return " ".join(map(str, numbers)) + "\n"

    def _running(self) -> list[int]:
        """Return the other threads that compute: one of them has the lock."""
        running = []
        for thread in self._others:
            try:
                if self._state(thread).startswith(_RUNNING):
                    running.append(thread)
            except OSError:  # it has ended
                continue
        return running

    def _state(self, thread: int) -> bytes:
        file = self._files.get(thread)
        if file is None:
            path = "%s/%d/syscall" % (self._folder, thread)
            file = self._files[thread] = os.open(path, os.O_RDONLY)
        return os.pread(file, _TEXT, 0)


def _look_until_the_end(looker: Looker, process: int) -> None:
    """Follow orders until there are no more of them, or training has ended."""
    is_on, orders = False, b""
    while os.getppid() == process:
        pause = looker.pause() if is_on else _REST_SECONDS
        if not select.select([0], [], [], pause)[0]:
            if is_on:
                _write(looker.look())
            continue
        read = os.read(0, _ORDER)
        if not read:
            return
        *complete, orders = (orders + read).split(b"\n")
        if not complete:
            continue
        wanted, *others = map(int, complete[-1].split())
        if wanted:
            try:
                looker.start(others)
            except PermissionError:
                _write(DENIED + "\n")
                continue
            if not is_on:
                looker.restart()
                _write(READY + "\n")
        is_on = bool(wanted)


def _write(report: str) -> None:
    # Nobody has read for long, as if the process was suspended.
    with contextlib.suppress(BlockingIOError):
        os.write(1, report.encode())


def main(arguments: list[str]) -> None:
    # Keys in the terminal are for training.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Files of libraries, which would keep connections open after training.
    for file in os.listdir("/proc/self/fd"):  # noqa: PTH208  # pathlib imports much
        if int(file) > 2:
            # That of the list itself is closed.
            with contextlib.suppress(OSError):
                os.close(int(file))
    os.set_blocking(1, False)
    process, thread, low, high = map(int, arguments[:4])
    looker = Looker(process, thread, (low, high), arguments[4].encode())
    try:
        _look_until_the_end(looker, process)
    except OSError:  # training has ended
        return


if __name__ == "__main__":
    main(sys.argv[1:])

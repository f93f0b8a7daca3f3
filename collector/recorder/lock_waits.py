"""Record how long the training thread waits for Python's lock while another thread has it.

Another process looks (``lock_looks``), a few hundred times a second at first: a thread of this process
would need the lock to look, so it would come when the waits are over. A thread reads what it reports and
looks up the line that has the lock. The training thread does nothing for that. That needs Linux, and a
Python with the lock; the process is started when other Python threads use CPU time.
"""

from __future__ import annotations

import ctypes
import os
import platform
import select
import subprocess
import sys
import threading
import time
from collections import defaultdict
from pathlib import Path
from time import monotonic_ns
from types import FrameType
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Set, Tuple

from . import lock_looks
from .guards import mark_background_thread
from .hangs import Frame, frames_of, is_users
from .step_log.line_format import INTERPRETER, InterruptionRow

# Without busy threads there is nothing to see, so only their CPU times are read.
_IDLE_SECONDS = 0.1
_IDLE_SHARE = 0.01
# A thread that has never used a larger share of a core has not had the lock for long.
_LEAST_SHARE = 0.001
# Looks go on after other threads were busy: they may be again.
_ON_NS = 20 * 10**9
# Reports are read in batches, each of which costs the thread that has the lock a moment.
_BATCH_SECONDS, _NEXT_SECONDS = 0.25, 0.5
# The process starts within this time, also where its files are far away; and it ends within the other.
_START_SECONDS, _END_SECONDS = 60.0, 1.0
_REPORTS = 1 << 16
#: The order to rest while no other thread is busy. Earlier reports may still be in the pipe.
_REST, _LEFT_REPORTS = b"0\n", 10
_MOST_LINES, _THREADS_SHOWN = 500, 3
_OWN_THREADS = "stallscope"
# The kernel's number of the clock of a thread's CPU time, from linux/posix-timers.h.
_THREADS_CLOCK = 6
# The kernel's number of the call that names the process that may look, from linux/prctl.h.
_SET_PTRACER = 0x59616D61
#: The number of the system call, by machine.
_FUTEX = {"x86_64": "202", "aarch64": "98"}
_RTLD_DL_SYMENT = 1


class TrainingThread(NamedTuple):
    """What ``threading.get_ident`` and ``threading.get_native_id`` return there."""

    ident: int
    native_id: int


class LockWaits:
    """Records the waits of the training thread on a separate thread, once started.

    Args:
        training: the thread to look at.
        emit: receives a row for each wait that is seen.
        next_step: returns the number of the next step.
    """

    def __init__(
        self,
        training: TrainingThread,
        emit: Callable[[InterruptionRow], None],
        next_step: Callable[[], int],
    ) -> None:
        self._training = training
        self._emit, self._next_step = emit, next_step
        #: Whether waits are recorded if they happen: not where the kernel does not tell threads' states.
        self.is_on = False
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="stallscope-lock", daemon=True)
        self._looker: Optional[_Looker] = None
        #: By native identity: the CPU time of each other thread when it was last read, and those that
        #: may have the lock.
        self._used: Dict[int, int] = {}
        self._candidates: Set[int] = set()
        self._checked = 0
        self._looks = self._waits = 0
        #: The latest wait, which may go on.
        self._latest: Optional[_Report] = None
        #: How often each thread, by native identity, was the only one that can have had the lock.
        self._alone: Dict[int, int] = defaultdict(int)
        #: How often each line of each thread had the lock when it was looked up; read by another thread.
        self._had_it: Dict[Tuple[str, Frame], int] = defaultdict(int)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Look no more; the thread and the process end by themselves."""
        self._stop.set()

    def fact(self) -> Optional[Dict[str, Any]]:
        """Return how often the thread was looked at and waited, and for whom; None without a wait."""
        if not self._waits:
            return None
        had_it = dict(self._had_it)
        most = sorted(had_it.items(), key=lambda item: -item[1])[:_THREADS_SHOWN]
        threads = [
            {"name": name, "file": file, "line": line, "function": code, "waits": waits}
            for (name, (file, line, code)), waits in most
        ]
        return {"looks": self._looks, "waits": self._waits, "threads": threads}

    def _run(self) -> None:
        mark_background_thread()
        try:
            command = _command(self._training.native_id)
        except OSError:  # this system does not tell it
            return
        self.is_on = True
        try:
            while not self._stop.wait(_IDLE_SECONDS):
                if _is_busy(self._other_threads()):
                    self._looker = self._looker or _Looker(command)
                    self._read_on(self._looker)
        except Exception:  # the recording works without it
            self.is_on = False
        finally:
            if self._looker is not None:
                self._looker.close()

    def _read_on(self, looker: _Looker) -> None:
        """Read reports until the other threads have long been idle.

        Raises:
            OSError: if the process has ended or may not look.
        """
        threads = self._other_threads()
        looker.start(self._candidates)
        last_busy = monotonic_ns()
        while monotonic_ns() - last_busy < _ON_NS:
            if self._stop.wait(_BATCH_SECONDS):
                return
            self._record(looker.reports(), threads)
            # The next one comes while a thread has the lock.
            fresh = looker.reports(_NEXT_SECONDS)
            self._record(fresh, threads)
            if fresh:
                self._look_up_line(fresh[-1], threads)
            threads = self._other_threads()
            looker.start(self._candidates)
            if _is_busy(threads):
                last_busy = monotonic_ns()
        looker.rest()

    def _record(self, reports: List[_Report], threads: List[_Thread]) -> None:
        """Make rows of waits that have ended."""
        recorders = {thread.native_id for thread in threads if thread.is_own}
        for report in reports:
            self._looks = report.all_looks
            if len(report.running) == 1:
                self._alone[report.running[0]] += 1
            if report.running and recorders.issuperset(report.running):
                continue
            latest = self._latest
            if latest is not None and latest.number == report.number:
                self._latest = latest.joined(report)
            else:
                self._record_latest()
                self._latest = report
        if not reports:
            self._record_latest()

    def _record_latest(self) -> None:
        wait, self._latest = self._latest, None
        if wait is not None:
            self._waits += wait.looks
            end = wait.at + wait.stands_for
            self._emit(InterruptionRow(INTERPRETER, self._next_step(), wait.at, end, wait.looks))

    def _look_up_line(self, report: _Report, threads: List[_Thread]) -> None:
        """Note the line of the thread that has the lock."""
        running = [
            thread for thread in threads if thread.native_id in report.running and not thread.is_own
        ]
        # Others compute without the lock.
        holder = max(running, key=lambda thread: self._alone[thread.native_id], default=None)
        frame = None if holder is None else sys._current_frames().get(holder.ident)
        if holder is not None and frame is not None:
            line = _line(frame)
            if len(self._had_it) < _MOST_LINES or (holder.name, line) in self._had_it:
                self._had_it[holder.name, line] += 1

    def _other_threads(self) -> List[_Thread]:
        """Return Python's other threads, with the share of a core that they used since the last call."""
        threads, used = [], {}
        since, self._checked = self._checked, monotonic_ns()
        # Without threading's lock, which a hung thread could hold.
        for ident, thread in list(getattr(threading, "_active", {}).items()):
            native_id = getattr(thread, "native_id", None)
            if native_id is None or ident == self._training.ident:
                continue
            try:
                used[native_id] = time.clock_gettime_ns(~native_id << 3 | _THREADS_CLOCK)
            except OSError:  # it has just ended
                continue
            # A new thread began at 0.
            before = self._used.get(native_id, 0 if since else used[native_id])
            share = (used[native_id] - before) / max(self._checked - since, 1)
            threads.append(_Thread(ident, native_id, str(thread.name), share))
        self._used = used
        self._candidates &= used.keys()
        self._candidates |= {
            thread.native_id for thread in threads if thread.is_own or thread.share > _LEAST_SHARE
        }
        return threads


class _Thread(NamedTuple):
    ident: int
    native_id: int
    name: str
    #: The share of a core that it used since this was last read.
    share: float

    @property
    def is_own(self) -> bool:
        """Return whether it is the recorder's."""
        return self.name.startswith(_OWN_THREADS)


def _is_busy(threads: List[_Thread]) -> bool:
    return sum(thread.share for thread in threads if not thread.is_own) > _IDLE_SHARE


class _Report(NamedTuple):
    """Looks, one after the other, that found the training thread waiting."""

    #: Counts the waits; one may have several reports.
    number: int
    #: The first look of the wait, in monotonic nanoseconds, and the time that these looks stand for.
    at: int
    stands_for: int
    looks: int
    #: How often the process has looked in all.
    all_looks: int
    #: The native identities of threads that computed then: one of them had the lock.
    running: Tuple[int, ...]

    def joined(self, report: _Report) -> _Report:
        """Return this report with a later one of the same wait."""
        stands_for, looks = self.stands_for + report.stands_for, self.looks + report.looks
        return self._replace(stands_for=stands_for, looks=looks)


class _Looker:
    """The process that looks, of which nothing is known but what it reports.

    Raises:
        OSError: if it cannot be started.
    """

    def __init__(self, command: List[str]) -> None:
        # Settings of training's Python and preloaded libraries are not for it.
        environment = {
            name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ
        }
        self._process = subprocess.Popen(
            command,
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            # Without a fork, which takes long in a large process; it closes them itself.
            close_fds=False,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._orders, self._reports = self._process.stdin, self._process.stdout
        os.set_blocking(self._reports.fileno(), False)
        self._poll = select.poll()
        self._poll.register(self._reports.fileno(), select.POLLIN)
        #: What it has been told last.
        self._order = b""
        self._text = b""

    def start(self, candidates: Set[int]) -> None:
        """Let it look, and tell it which threads, by native identity, may have the lock.

        Raises:
            OSError: if it has ended or may not look.
        """
        rested = self._order in (b"", _REST)
        order = b"1 %s\n" % b" ".join(b"%d" % thread for thread in sorted(candidates))
        self._tell(order)
        if rested and self._answer() == lock_looks.DENIED:
            # Kernels such as Ubuntu's allow it to a process that is named.
            _function("prctl")(_SET_PTRACER, *map(ctypes.c_ulong, (self._process.pid, 0, 0, 0)))
            self._order = b""
            self._tell(order)
            if self._answer() == lock_looks.DENIED:
                raise PermissionError("the process may not look")

    def rest(self) -> None:
        """Let it wait until it is to look again."""
        self._tell(_REST)

    def reports(self, seconds: float = 0.0) -> List[_Report]:
        """Return what it has reported, and wait so many seconds for that.

        Raises:
            OSError: if it has ended.
        """
        numbers = (map(int, line.split()) for line in self._lines(seconds))
        return [
            _Report(number, at, stands_for, looks, all_looks, tuple(running))
            for number, at, stands_for, looks, all_looks, *running in numbers
        ]

    def close(self) -> None:
        """Let it end."""
        self._orders.close()
        self._reports.close()
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()

    def _tell(self, order: bytes) -> None:
        if order != self._order:
            self._orders.write(order)
        self._order = order

    def _answer(self) -> str:
        """Return the answer to an order to look.

        Raises:
            OSError: if there is none.
        """
        for _ in range(_LEFT_REPORTS):
            for line in self._lines(_START_SECONDS):
                if line in (lock_looks.READY, lock_looks.DENIED):
                    return line
        raise OSError("the process does not answer")

    def _lines(self, seconds: float) -> List[str]:
        """Return complete lines that it has written, and wait for the first one.

        Raises:
            OSError: if it has ended.
        """
        if not self._poll.poll(seconds * 1e3):
            return []
        text = self._reports.read(_REPORTS)
        if not text:
            raise OSError("the process has ended")
        *lines, self._text = (self._text + text).split(b"\n")
        return [line.decode() for line in lines]


def _command(training: int) -> List[str]:
    """Return the command of the process that looks at a thread.

    Raises:
        OSError: if this system does not tell the state of threads, or Python has no lock.
    """
    futex, python = _FUTEX.get(platform.machine()), sys.executable or ""
    has_lock = getattr(sys, "_is_gil_enabled", None)
    if not futex or sys.maxsize < 2**32 or not (has_lock is None or has_lock()):
        raise OSError("no futex of Python's lock")
    # Another program that contains Python would start itself.
    looker = Path(lock_looks.__file__)
    if not Path(python).name.startswith("python") or not looker.is_file():
        raise OSError("no program that looks")
    Path("/proc/self/task/%d/syscall" % training).read_bytes()
    low, high = _pythons_state()
    numbers = map(str, (os.getpid(), training, low, high))
    return [python, "-I", "-S", str(looker), *numbers, futex]


class _Library(ctypes.Structure):
    """``Dl_info`` of the C library."""

    _fields_ = [
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    ]


class _Symbol(ctypes.Structure):
    """``Elf64_Sym``."""

    _fields_ = [
        ("name", ctypes.c_uint32),
        ("kind", ctypes.c_uint16),
        ("section", ctypes.c_uint16),
        ("value", ctypes.c_uint64),
        ("size", ctypes.c_uint64),
    ]


def _pythons_state() -> Tuple[int, int]:
    """Return where Python's state, which contains its lock, begins and ends in memory.

    Raises:
        OSError: if it is not found.
    """
    try:
        address = ctypes.addressof(ctypes.c_char.in_dll(ctypes.pythonapi, "_PyRuntime"))
    except ValueError as error:
        raise OSError("Python's state is not found") from error
    library, symbol = _Library(), ctypes.POINTER(_Symbol)()
    where = (ctypes.c_void_p(address), ctypes.byref(library), ctypes.byref(symbol))
    if not _function("dladdr1")(*where, _RTLD_DL_SYMENT) or not symbol:
        raise OSError("Python's state is not found")
    return address, address + symbol.contents.size


def _function(name: str) -> Any:
    """Return a function of the C library, which keeps Python's lock while it runs.

    Raises:
        OSError: if there is none.
    """
    # Before version 2.34, glibc had several libraries.
    for library in (None, "libdl.so.2"):
        try:
            return getattr(ctypes.PyDLL(library), name)
        except (AttributeError, OSError):
            continue
    raise OSError("no %s" % name)


def _line(frame: FrameType) -> Frame:
    """Return the innermost line of the user's code in a thread, or of any code."""
    frames = frames_of(frame)
    return next(filter(is_users, frames), frames[0])

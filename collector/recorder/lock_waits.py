"""Sample how often the training thread waits for Python's lock while another thread has it.

A look is a short sleep of the recorder's thread. If that thread gets the lock late afterwards, another
thread had it: the one that has used CPU time meanwhile. The kernel then tells whether the training
thread waits for the lock, too: by a futex inside of Python's own state. No signal is sent, and the
training thread does nothing for a look. That needs Linux, and a Python with the lock.
"""

from __future__ import annotations

import ctypes
import os
import platform
import random
import sys
import threading
import time
from collections import defaultdict
from time import monotonic_ns
from types import FrameType
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

from .guards import mark_background_thread
from .hangs import Frame, frames_of, is_users
from .step_log.line_format import INTERPRETER, InterruptionRow

# Without busy threads there is nothing to see, so only their CPU times are read.
_IDLE_SECONDS = 0.5
_IDLE_SHARE = 0.01
# Looks go on after other threads were busy: they may be again.
_ON_NS = 20 * 10**9
# The mean time between two looks, and how long a look takes.
_PERIOD_NS, _LOOK_NS = 25_000_000, 2_000_000
# A look stands for the time since the one before, but not for a pause of the sampler.
_LONGEST = 4
# After so many looks the next ones come half as often, down to a few a second: much is known by then.
_MANY, _LONGEST_PERIOD_NS = 4_000, 400_000_000
# A lock that comes later than this was another thread's; a timer may be late by less.
_LATE_NS = 500_000
# Looks come when the lock changes hands, and a thread that waited has often just had it then. So the
# time asleep, which the kernel counts, is shared out by what looks that found it asleep have seen. They
# may be so many times too few; at first, both are taken to be alike.
_LARGEST_SCALE, _PRIOR_LOOKS = 4.0, 5
# A thread that had the lock has used CPU time, and training has used less than this share of a core.
_USED_NS, _MOST_TRAINING = 50_000, 0.5
_MOST_LINES, _THREADS_SHOWN = 500, 3
_OWN_THREADS = "stallscope"
# The kernel's number of the clock of a thread's CPU time, from linux/posix-timers.h.
_THREADS_CLOCK = 6
_TEXT = 256
#: The number of the system call, by machine.
_FUTEX = {"x86_64": b"202", "aarch64": b"98"}
_RTLD_DL_SYMENT = 1


class TrainingThread(NamedTuple):
    """What ``threading.get_ident`` and ``threading.get_native_id`` return there."""

    ident: int
    native_id: int


class LockWaits:
    """Looks at the training thread from a thread of its own, once started.

    Args:
        training: the thread to look at.
        emit: receives a row for each look that finds the thread waiting.
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
        #: Whether waits are recorded if they happen: not where the kernel does not tell threads' times.
        self.is_on = False
        # Training has random numbers of its own.
        self._random = random.Random()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="stallscope-lock", daemon=True)
        #: By native identity: the CPU time of each other thread when it was last read.
        self._used: Dict[int, int] = {}
        self._checked = 0
        self._looks = self._waits = 0
        self._asleep = _Asleep()
        #: How often each line of each thread had the lock while training waited; read by another thread.
        self._had_it: Dict[Tuple[str, Frame], int] = defaultdict(int)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Look no more; the thread ends by itself."""
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
            kernel = _Kernel(self._training.native_id)
        except OSError:  # this system does not tell it
            return
        self.is_on = True
        try:
            while not self._stop.wait(_IDLE_SECONDS):
                if self._others_are_busy():
                    self._look_on(kernel)
        except Exception:  # the recording works without it
            self.is_on = False
        finally:
            kernel.close()

    def _others_are_busy(self) -> bool:
        since, self._checked = self._checked, monotonic_ns()
        used = sum(thread.used_ns for thread in self._other_threads())
        return used > _IDLE_SHARE * (self._checked - since)

    def _look_on(self, kernel: _Kernel) -> None:
        """Look at random moments until the other threads have long been idle."""
        last_busy = before = monotonic_ns()
        self._asleep.restart(before, kernel.times())
        while monotonic_ns() - last_busy < _ON_NS:
            rarely = min(1 << (self._looks // _MANY), _LONGEST_PERIOD_NS // _PERIOD_NS)
            period_ns = rarely * _PERIOD_NS
            if self._stop.wait(period_ns * self._random.uniform(0.5, 1.5) / 1e9):
                return
            look = self._look(kernel)
            self._looks += 1
            self._asleep.count(look)
            if look.used_ns > _IDLE_SHARE * look.ns:
                last_busy = look.at
            if look.holder is not None:
                stands_for = min(look.at - before, _LONGEST * period_ns) * self._asleep.scale
                self._record_wait(look.at, int(stands_for), look.holder)
            before = look.at

    def _look(self, kernel: _Kernel) -> _Look:
        """Sleep, and see when the lock came, who had it, and whether training waits for it."""
        started = kernel.times()
        self._other_threads()
        since = monotonic_ns()
        time.sleep(_LOOK_NS / 1e9)
        at = monotonic_ns()
        asleep, waits = kernel.training_sleeps()
        threads = self._other_threads()
        ended = kernel.times()
        ns = at - since
        # A thread that no core was free for is late without a lock.
        late_ns = ns - _LOOK_NS - (ended.own_waited - started.own_waited)
        training_ns = ended.training_ran - started.training_ran
        is_wait = waits and late_ns > _LATE_NS and training_ns < _MOST_TRAINING * ns
        busy = [thread for thread in threads if thread.used_ns > max(_USED_NS, training_ns)]
        holder = max(busy, key=lambda thread: thread.used_ns, default=None) if is_wait else None
        return _Look(at, ns, holder, sum(thread.used_ns for thread in threads), asleep, ended)

    def _record_wait(self, at: int, stands_for: int, holder: _Thread) -> None:
        """Record a look at which the training thread waited for the lock that another one had."""
        frame = sys._current_frames().get(holder.ident)
        if frame is None:
            return
        self._waits += 1
        line = _line(frame)
        if len(self._had_it) < _MOST_LINES or (holder.name, line) in self._had_it:
            self._had_it[holder.name, line] += 1
        self._emit(InterruptionRow(INTERPRETER, self._next_step(), at, at + stands_for, 1))

    def _other_threads(self) -> List[_Thread]:
        """Return Python's other threads, with the CPU time that they used since the last call."""
        threads, used = [], {}
        # Without threading's lock, which a hung thread could hold.
        for ident, thread in list(getattr(threading, "_active", {}).items()):
            native_id = getattr(thread, "native_id", None)
            name = str(thread.name)
            is_training = ident == self._training.ident
            if native_id is None or is_training or name.startswith(_OWN_THREADS):
                continue
            try:
                used[native_id] = time.clock_gettime_ns(~native_id << 3 | _THREADS_CLOCK)
            except OSError:  # it has just ended
                continue
            since = used[native_id] - self._used.get(native_id, used[native_id])
            threads.append(_Thread(ident, name, since))
        self._used = used
        return threads


class _Thread(NamedTuple):
    ident: int
    name: str
    #: CPU time since it was last read.
    used_ns: int


class _Look(NamedTuple):
    #: When it ended, and how long it took.
    at: int
    ns: int
    #: The thread that had the lock while training waited for it; None without a wait.
    holder: Optional[_Thread]
    #: CPU time of all other threads.
    used_ns: int
    #: Whether the training thread was asleep, for any reason.
    is_asleep: bool
    times: _Times


class _Times(NamedTuple):
    """Nanoseconds since threads began."""

    #: How long this thread was ready to run and had no core.
    own_waited: int
    #: How long the training thread ran, and ran or was ready to.
    training_ran: int
    training_awake: int


class _Asleep:
    """Compares how long training slept, by the kernel, with the looks that found it asleep."""

    def __init__(self) -> None:
        self._all_ns = self._slept_ns = 0
        self._looks = self._asleep = 0
        self._at = self._awake = 0

    @property
    def scale(self) -> float:
        """The time asleep as a multiple of what the looks say."""
        share = self._slept_ns / self._all_ns if self._all_ns else 1.0
        looks = self._looks + _PRIOR_LOOKS
        scale = share * looks / (self._asleep + _PRIOR_LOOKS * share or 1.0)
        return min(scale, _LARGEST_SCALE)

    def restart(self, at: int, times: _Times) -> None:
        """Begin to count again, after a time without looks."""
        self._at, self._awake = at, times.training_awake

    def count(self, look: _Look) -> None:
        """Count a look, and the time since the one before."""
        passed, awake = look.at - self._at, look.times.training_awake - self._awake
        self._all_ns += passed
        self._slept_ns += max(passed - awake, 0)
        self._looks += 1
        self._asleep += look.is_asleep
        self.restart(look.at, look.times)


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


class _Kernel:
    """What the kernel tells of this thread and of the training thread.

    Raises:
        OSError: if this system does not tell it, or Python has no lock.
    """

    def __init__(self, training: int) -> None:
        futex = _FUTEX.get(platform.machine())
        has_lock = getattr(sys, "_is_gil_enabled", None)
        if not futex or sys.maxsize < 2**32 or not (has_lock is None or has_lock()):
            raise OSError("no futex of Python's lock")
        self._futex = futex
        # It keeps the lock, which os.pread would release: training must not take it meanwhile.
        self._pread = _function("pread")
        self._low, self._high = _pythons_state()
        self._text = ctypes.create_string_buffer(_TEXT)
        this = threading.get_native_id()
        self._files: List[int] = []
        try:
            for task, name in ((this, "schedstat"), (training, "schedstat"), (training, "syscall")):
                path = "/proc/self/task/%d/%s" % (task, name)
                self._files.append(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
            self.times()
        except OSError:
            self.close()
            raise

    def times(self) -> _Times:
        (_, own_waited), (ran, waited) = (
            [int(word) for word in self._words(file)[:2]] for file in self._files[:2]
        )
        return _Times(own_waited, ran, ran + waited)

    def training_sleeps(self) -> Tuple[bool, bool]:
        """Return whether the training thread sleeps, and waits for the lock, which this thread has."""
        words = self._words(self._files[2])
        is_futex = len(words) > 2 and words[0] == self._futex
        is_wait = is_futex and self._low <= int(words[1], 16) < self._high
        return words[0] != b"running", is_wait

    def close(self) -> None:
        for file in self._files:
            os.close(file)
        self._files = []

    def _words(self, file: int) -> List[bytes]:
        size = self._pread(file, self._text, _TEXT - 1, ctypes.c_long(0))
        if size <= 0:
            raise OSError("the kernel does not tell the state of a thread")
        return self._text.raw[:size].split()


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

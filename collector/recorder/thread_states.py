"""Read the kernel's states of threads without Python's lock, to see whether they wait for it.

A Python thread that looks at another one takes the lock first, so it would look only when the lock
changes hands, and find the wrong threads waiting. Threads of the C library look instead, at a given
moment and without the lock: they read the kernel's states. While a thread waits for the lock, this is a
futex inside of Python's own state. That needs Linux, glibc and the lock itself.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import sys
import time
from typing import Any, Dict, List, Optional, Sequence, Tuple

# A look is late where cores are busy; it is waited for this long before files are closed.
_LATE_SECONDS, _PATIENCE_SECONDS = 0.002, 1.0
_TEXT, _TICKS, _MOST_THREADS = 256, 8, 4
#: The beginning of the state of a thread that computes.
RUNNING = b"running"
_FUTEX = {"x86_64": b"202", "aarch64": b"98"}
_RTLD_DL_SYMENT = 1
_SIGEV_NONE, _SIGEV_THREAD = 1, 2


class _SignalEvent(ctypes.Structure):
    """``struct sigevent`` of 64-bit Linux."""

    _fields_ = [
        ("value", ctypes.c_void_p),
        ("signal", ctypes.c_int),
        ("notify", ctypes.c_int),
        ("function", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("more", ctypes.c_char * 32),
    ]


class _Request(ctypes.Structure):
    """``struct aiocb`` of glibc on 64-bit machines."""

    _fields_ = [
        ("descriptor", ctypes.c_int),
        ("operation", ctypes.c_int),
        ("priority", ctypes.c_int),
        ("buffer", ctypes.c_void_p),
        ("size", ctypes.c_size_t),
        ("event", _SignalEvent),
        ("next", ctypes.c_void_p),
        ("policy", ctypes.c_int * 2),
        ("error", ctypes.c_int),
        ("result", ctypes.c_ssize_t),
        ("offset", ctypes.c_long),
        ("reserved", ctypes.c_char * 32),
    ]


class _Memory(ctypes.Structure):
    """All that the C library's threads write to; it is never freed, because they may be late."""

    _fields_ = [
        ("timer", _Request),
        ("states", _Request * _MOST_THREADS),
        ("ticks", ctypes.c_char * _TICKS),
        ("texts", (ctypes.c_char * _TEXT) * _MOST_THREADS),
    ]


class _TimerSetting(ctypes.Structure):
    _fields_ = [("interval", ctypes.c_long * 2), ("value", ctypes.c_long * 2)]


class _Library(ctypes.Structure):
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


class Glance:
    """A look at threads: a timer's end makes the C library read the kernel's states of them, in turn.

    Args:
        native_id: the number of the thread that waits or not.

    Raises:
        OSError: if this system has no such state, or Python has no lock.
    """

    def __init__(self, native_id: int) -> None:
        futex = _FUTEX.get(platform.machine())
        gil = getattr(sys, "_is_gil_enabled", None)
        glibc = os.confstr("CS_GNU_LIBC_VERSION") if sys.platform == "linux" else None
        if not futex or not glibc or sys.maxsize < 2**32 or not (gil is None or gil()):
            raise OSError("no futex of Python's lock")
        self._futex, self._native_id = futex, native_id
        self._low, self._high = _pythons_state()
        # These keep the lock: functions of os would release it.
        self._read, self._set = _function("aio_read"), _function("timerfd_settime")
        self._open, self._pread, self._close = map(_function, ("open", "pread", "close"))
        calloc = _function("calloc")
        calloc.restype = ctypes.c_void_p
        self._address = calloc(1, ctypes.sizeof(_Memory))
        self._memory = _Memory.from_address(self._address)
        self._now = ctypes.create_string_buffer(_TEXT)
        #: Descriptors by thread, of which the first ones are being read.
        self._files: Dict[int, int] = {}
        self._pending: List[int] = []
        self._timer = _function("timerfd_create")(time.CLOCK_MONOTONIC, os.O_CLOEXEC)
        path = b"/proc/self/task/%d/schedstat" % native_id
        self._schedule = self._open(path, os.O_RDONLY | os.O_CLOEXEC)
        if self._timer < 0 or self._file_of(native_id) < 0:
            raise OSError("no timer, or no state of threads")

    def begin(self, delay_ns: int, others: Sequence[int]) -> None:
        """Look at the thread, and at a few others, after so many nanoseconds, below a second.

        Raises:
            OSError: if the C library takes no request.
        """
        threads = [self._native_id, *others][:_MOST_THREADS]
        for gone in self._files.keys() - set(threads):
            self._close(self._files.pop(gone))
        files = [self._file_of(thread) for thread in threads]
        memory, first = self._memory, self._address + _Memory.states.offset
        aio_read = ctypes.cast(self._read, ctypes.c_void_p).value
        memory.timer = _Request(descriptor=self._timer, size=_TICKS)
        memory.timer.buffer = self._address + _Memory.ticks.offset
        memory.timer.event = _SignalEvent(value=first, notify=_SIGEV_THREAD, function=aio_read)
        for at, file in enumerate(files):
            request = _Request(descriptor=file, size=_TEXT - 1, error=errno.EINPROGRESS)
            request.buffer = self._address + _Memory.texts.offset + at * _TEXT
            after = first + (at + 1) * ctypes.sizeof(_Request)
            request.event = _SignalEvent(value=after, notify=_SIGEV_THREAD, function=aio_read)
            if at == len(files) - 1:
                request.event.notify = _SIGEV_NONE
            memory.states[at] = request
        setting = _TimerSetting((0, 0), (0, delay_ns))
        failed = self._set(self._timer, 0, ctypes.byref(setting), None)
        if failed or self._read(ctypes.byref(memory.timer)):
            raise OSError("no asynchronous reads")
        self._pending = threads

    def states(self) -> Optional[Dict[int, bytes]]:
        """Return the states by thread at the last look; None while it is pending."""
        memory, threads = self._memory, self._pending
        if not threads or memory.states[len(threads) - 1].error == errno.EINPROGRESS:
            return None
        self._pending = []
        sizes = (max(memory.states[at].result, 0) for at in range(len(threads)))
        texts = zip(threads, memory.texts, sizes)
        return {thread: text.raw[:size] for thread, text, size in texts}

    def is_wait(self, state: bytes) -> bool:
        """Return whether a state is a wait for Python's lock."""
        words = state.split(None, 2)
        return (
            len(words) > 2
            and words[0] == self._futex
            and self._low <= int(words[1], 16) < self._high
        )

    def waits_now(self, native_id: int) -> bool:
        """Return whether a thread waits for the lock, which this thread has."""
        size = self._pread(self._file_of(native_id), self._now, _TEXT - 1, ctypes.c_long(0))
        return self.is_wait(self._now.raw[: max(size, 0)])

    def awake_ns(self) -> Optional[int]:
        """Return how long the thread has computed or been ready to, in all; None if unknown."""
        size = self._pread(self._schedule, self._now, _TEXT - 1, ctypes.c_long(0))
        words = self._now.raw[: max(size, 0)].split()
        return int(words[0]) + int(words[1]) if len(words) > 1 else None

    def close(self) -> None:
        """Close the files once no look is pending: it would read other files of these numbers."""
        until = time.monotonic() + _PATIENCE_SECONDS
        while self._pending and self.states() is None and time.monotonic() < until:
            time.sleep(_LATE_SECONDS)
        if not self._pending:
            for file in (self._timer, self._schedule, *self._files.values()):
                self._close(file)

    def _file_of(self, native_id: int) -> int:
        """Return a descriptor of the state of a thread; -1 if it has ended."""
        if native_id not in self._files:
            path = b"/proc/self/task/%d/syscall" % native_id
            self._files[native_id] = self._open(path, os.O_RDONLY | os.O_CLOEXEC)
        return self._files[native_id]


def _pythons_state() -> Tuple[int, int]:
    """Return where Python's state, which contains its lock, begins and ends in memory."""
    address = ctypes.addressof(ctypes.c_char.in_dll(ctypes.pythonapi, "_PyRuntime"))
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
    for library in (None, "librt.so.1", "libdl.so.2"):
        try:
            return getattr(ctypes.PyDLL(library), name)
        except (AttributeError, OSError):
            continue
    raise OSError("no %s" % name)

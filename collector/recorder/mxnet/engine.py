"""Having MXNet's engine take down when it is through with something, for a few microseconds.

What is given to the engine is a function that does nothing, and that has to wait for arrays as an
operator that reads them would. When the engine has called it, it gives the function's argument back, to
another function that takes nothing else: that one has to take the time, as waking a thread of Python to
do so costs the training more than all the rest, and comes late on a busy machine. No function of the C
library takes a time with a single argument, but one reads a character of a stream, and a stream may say
which function it reads with: here, the one that reads the clock, into the stream's own buffer.

An array to wait for instead would cost ten times as much; and a thread that waits for an array that
could not be computed is told of the error, of which the training then never hears.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections import deque
from time import monotonic_ns
from typing import Any, Callable, Deque, List, Tuple

from mxnet.base import _LIB, c_handle_array, check_call

#: The library, in whose calls Python is kept: to give it to another thread and to have it back takes
#: longer than what is asked here.
library = ctypes.PyDLL(_LIB._name)
# Nothing of it is there on Windows.
_system: Any = ctypes.CDLL(None) if os.name == "posix" else object()

# setvbuf's _IOFBF: a stream that is not buffered has all others flushed before it reads.
_FULLY_BUFFERED = 0
_CPU = 1
# FnProperty::kCPUPrioritized: such functions have workers of their own, and wait for no operators.
_PRIORITIZED = 3
_NOT_YET = -1

#: Arrays as the engine takes them: their handles, how many there are, and the arrays, which the one
#: that has handles has to keep.
Handles = Tuple[Any, ctypes.c_int, List[Any]]


class _Context(ctypes.Structure):
    _fields_ = (("device_type", ctypes.c_int), ("device_id", ctypes.c_int))


class _StreamFunctions(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_void_p) for name in ("read", "write", "seek", "close"))


class _Time(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


def handles_of(arrays: List[Any]) -> Handles:
    """Arrays as the engine takes them."""
    return c_handle_array(arrays), ctypes.c_int(len(arrays)), arrays


class Moment:
    """When the engine was through with something.

    Raises:
        OSError: where the system has no streams with functions of one's own, or no memory.
    """

    __slots__ = ("_time", "stream")

    def __init__(self) -> None:
        try:
            opens, clock, allocate = _system.fopencookie, _system.clock_gettime, _system.malloc
        except AttributeError as error:
            raise OSError("this system's C library cannot take times for the engine") from error
        opens.restype = allocate.restype = ctypes.c_void_p
        opens.argtypes = (ctypes.c_void_p, ctypes.c_char_p, _StreamFunctions)
        # The function's first argument is this one, and the second the buffer.
        functions = _StreamFunctions(read=ctypes.cast(clock, ctypes.c_void_p))
        stream = opens(time.CLOCK_MONOTONIC, b"r", functions)
        # Neither is freed: the engine may use them as long as the process runs.
        memory = allocate(ctypes.c_size_t(ctypes.sizeof(_Time)))
        if not stream or not memory:
            raise OSError("there is no memory for another stream")
        self._time = _Time.from_address(memory)
        self._time.seconds = self._time.nanoseconds = _NOT_YET
        #: What the engine gives back.
        self.stream = ctypes.c_void_p(stream)
        buffer, size = ctypes.byref(self._time), ctypes.c_size_t(ctypes.sizeof(_Time))
        _system.setvbuf(self.stream, buffer, _FULLY_BUFFERED, size)

    @property
    def is_there(self) -> bool:
        return bool(self._time.seconds != _NOT_YET and self._time.nanoseconds != _NOT_YET)

    def take(self) -> int:
        """In monotonic nanoseconds; it has to be there, and may be asked for anew."""
        at = self.read()
        _free.append(self)
        return at

    def read(self) -> int:
        """As ``take``, for a caller that holds the lock."""
        # The stream found nothing to read; another read would not even look. This waits until
        # the one that is just through with the clock is through with the stream.
        _system.clearerr(self.stream)
        at = int(self._time.seconds * 1_000_000_000 + self._time.nanoseconds)
        self._time.seconds = self._time.nanoseconds = _NOT_YET
        return at


# Those that are not in use.
_free: Deque[Moment] = deque()


def asker() -> Callable[[Handles], Moment]:
    """What asks the engine when everything will be done that was given to it to write arrays with.

    What is needed for that are arguments of it: in every step the training has just driven all else out
    of the processor's caches, and to look it up would take longer than to ask.

    Raises:
        OSError: where that cannot be had.
    """
    _try()
    context, prioritized, zero = _Context(_CPU, 0), ctypes.c_int(_PRIORITIZED), ctypes.c_int(0)
    place, kind = ctypes.byref(context), ctypes.byref(prioritized)
    nothing, clock = (ctypes.cast(one, ctypes.c_void_p) for one in (_system.getpid, _system.getc))

    def ask(
        arrays: Handles,
        free: Callable[[], Moment] = _free.popleft,
        push: Callable[..., int] = library.MXEnginePushSyncND,
        does_nothing: Any = nothing,
        takes_time: Any = clock,
        where: Any = place,
        how: Any = kind,
        none: Any = zero,
    ) -> Moment:
        try:
            moment = free()
        except IndexError:
            moment = Moment()
        to, handles, count = moment.stream, arrays[0], arrays[1]
        name = b"stallscope"
        failed = push(
            does_nothing, to, takes_time, where, handles, count, None, none, how, none, name
        )
        if failed:
            check_call(failed)
        return moment

    return ask


def _try() -> None:
    """See whether this C library's streams do it, also for the second time."""
    moment = Moment()
    for _ in range(2):
        before = monotonic_ns()
        _system.getc(moment.stream)
        if not moment.is_there or not before <= moment.read() <= monotonic_ns():
            raise OSError("this system's C library takes no times for the engine")
    _free.append(moment)

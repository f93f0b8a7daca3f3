"""Let MXNet's engine take the time when it has finished something, at a cost of a few microseconds.

The engine gets a function that does nothing, but that waits for arrays like an operator that reads them.
After calling it, the engine passes the function's argument to a completion function, with no other
argument. That function must take the time: waking a Python thread for it costs training more than
everything else, and is late on a busy machine. No function of the C library takes a time with a single
argument. But one reads a character of a stream, and a stream may define its own read function: here that
function reads the clock, into the stream's own buffer.

Waiting for an array instead would cost ten times as much. And if the array could not be computed, the
waiting thread would receive the error, and training would never see it.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections import deque
from time import monotonic_ns
from typing import Any, Callable, Deque, List, Optional, Tuple

from mxnet.base import _LIB, c_handle_array, check_call
from mxnet.gluon.data import BatchSampler, DataLoader
from mxnet.gluon.data import dataloader as _loaders
from mxnet.ndarray import NDArray
from mxnet.ndarray.ndarray import _int64_enabled

from ..loop_steps import Shape

#: The library, called without releasing Python's lock: handing the lock over takes longer than these
#: calls.
library = ctypes.PyDLL(_LIB._name)
# These functions are missing on Windows.
_system: Any = ctypes.CDLL(None) if os.name == "posix" else object()
# setvbuf's _IOFBF: reading an unbuffered stream would flush all others first.
_FULLY_BUFFERED = 0
_CPU = 1
# FnProperty::kCPUPrioritized: such functions have their own workers and do not wait for operators.
_PRIORITIZED = 3
_NOT_YET = -1
#: Arrays for the engine: their handles, their number, and the arrays, which must live as long as the
#: handles.
Handles = Tuple[Any, ctypes.c_int, List[Any]]

_Size = ctypes.c_int64 if _int64_enabled() else ctypes.c_int
_OF_GLUON = (_loaders.default_batchify_fn, _loaders.default_mp_batchify_fn)
_shape_of = library.MXNDArrayGetShapeEx64 if _int64_enabled() else library.MXNDArrayGetShapeEx


class _Context(ctypes.Structure):
    _fields_ = (("device_type", ctypes.c_int), ("device_id", ctypes.c_int))


class _StreamFunctions(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_void_p) for name in ("read", "write", "seek", "close"))


class _Time(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


def handles_of(arrays: List[Any]) -> Handles:
    """Prepare arrays for the engine."""
    return c_handle_array(arrays), ctypes.c_int(len(arrays)), arrays


class Moment:
    """When the engine finished something.

    Raises:
        OSError: if the system has no streams with custom functions, or no memory.
    """

    __slots__ = ("_time", "stream")

    def __init__(self) -> None:
        try:
            opens, clock, allocate = _system.fopencookie, _system.clock_gettime, _system.malloc
        except AttributeError as error:
            raise OSError("this system's C library cannot take times for the engine") from error
        opens.restype = allocate.restype = ctypes.c_void_p
        opens.argtypes = (ctypes.c_void_p, ctypes.c_char_p, _StreamFunctions)
        # The clock function takes the stream's cookie (the clock's number) first, then the buffer.
        functions = _StreamFunctions(read=ctypes.cast(clock, ctypes.c_void_p))
        stream = opens(time.CLOCK_MONOTONIC, b"r", functions)
        # Neither is freed: the engine may use them as long as the process runs.
        memory = allocate(ctypes.c_size_t(ctypes.sizeof(_Time)))
        if not stream or not memory:
            raise OSError("there is no memory for another stream")
        self._time = _Time.from_address(memory)
        self._time.seconds = self._time.nanoseconds = _NOT_YET
        #: The argument for the engine.
        self.stream = ctypes.c_void_p(stream)
        buffer, size = ctypes.byref(self._time), ctypes.c_size_t(ctypes.sizeof(_Time))
        _system.setvbuf(self.stream, buffer, _FULLY_BUFFERED, size)

    @property
    def is_there(self) -> bool:
        return bool(self._time.seconds != _NOT_YET and self._time.nanoseconds != _NOT_YET)

    def take(self) -> int:
        """Return monotonic nanoseconds, once they are known, and free the moment."""
        at = self.read()
        _free.append(self)
        return at

    def read(self) -> int:
        """Read like ``take``, without freeing the moment."""
        # The stream has seen its end; another read would not even try. This call waits until a
        # thread that has just read the clock is done with the stream.
        _system.clearerr(self.stream)
        at = int(self._time.seconds * 1_000_000_000 + self._time.nanoseconds)
        self._time.seconds = self._time.nanoseconds = _NOT_YET
        return at


# Moments that are not in use.
_free: Deque[Moment] = deque()


def asker() -> Callable[[Handles], Moment]:
    """Return a function that asks when the engine has finished all writes to arrays so far.

    Everything it needs is a default argument: in every step training has just evicted everything else
    from the CPU's caches, and looking up names would take longer than the question.

    Raises:
        OSError: if the system does not support it.
    """
    _check_streams()
    context, prioritized, zero = _Context(_CPU, 0), ctypes.c_int(_PRIORITIZED), ctypes.c_int(0)
    place, kind = ctypes.byref(context), ctypes.byref(prioritized)
    nothing, clock = (
        ctypes.cast(function, ctypes.c_void_p) for function in (_system.getpid, _system.getc)
    )

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


def _check_streams() -> None:
    """Check that this C library's streams read the clock, and do so repeatedly."""
    moment = Moment()
    for _ in range(2):
        before = monotonic_ns()
        _system.getc(moment.stream)
        if not moment.is_there or not before <= moment.read() <= monotonic_ns():
            raise OSError("this system's C library takes no times for the engine")
    _free.append(moment)


# -- Read the shape of a batch without MXNet's slower ``shape`` -----------------------------------


class Shapes:
    """Reads the shapes of batches; for one thread."""

    __slots__ = ("_answer", "_dimensions", "_sizes")

    def __init__(self) -> None:
        self._dimensions = ctypes.c_int()
        self._sizes = ctypes.POINTER(_Size)()
        # Where the library writes its result.
        self._answer = ctypes.byref(self._dimensions), ctypes.byref(self._sizes)

    def of(self, batch: Any) -> Optional[Shape]:
        """Return the shape of the first array that has dimensions; None without any."""
        kind = type(batch)
        first = batch[0] if (kind is list or kind is tuple) and batch else batch
        # The usual kind of batch. An unknown shape has -1 dimensions.
        if (
            type(first) is NDArray
            and _shape_of(first.handle, *self._answer) == 0
            and self._dimensions.value > 0
        ):
            sizes, dimensions = self._sizes, self._dimensions.value
            # The usual kinds; a slice takes four times as long.
            if dimensions == 2:
                return sizes[0], sizes[1]
            return sizes[0:dimensions]
        return _of_any(batch)


def full_batches(loader: Any) -> Tuple[int, Optional[Shape]]:
    """Return the number of batches at the start that are certainly full, and the start of their shape.

    Reading a batch's shape takes most of the time of an iteration. It is known for Gluon's own loader
    with its own batchify function; elsewhere the result is 0.
    """
    if type(loader) is not DataLoader or loader._batchify_fn not in _OF_GLUON:
        return 0, None
    batches = loader._batch_sampler
    # A custom sampler may give fewer samples than its length says, or have no length.
    if type(batches) is not BatchSampler or not _is_mxnet_sampler(batches._sampler):
        return 0, None
    return len(batches._sampler) // batches._batch_size, (batches._batch_size,)


def _is_mxnet_sampler(sampler: Any) -> bool:
    return type(sampler).__module__.startswith("mxnet.")


def _of_any(batch: Any) -> Optional[Shape]:
    data = getattr(batch, "data", None)
    if isinstance(data, list):
        # A DataBatch of a legacy iterator.
        batch = data
    if isinstance(batch, dict):
        batch = list(batch.values())
    if isinstance(batch, (list, tuple)):
        return next(filter(None, map(_of_any, batch)), None)
    return getattr(batch, "shape", None) or None

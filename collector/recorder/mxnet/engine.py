"""Being told when MXNet's engine is through with something, at the price of a few microseconds.

What is given to the engine is a function that does nothing, and that has to wait for arrays as an
operator that reads them would. When the engine has called it, it gives the function's argument back:
that is where a semaphore is counted up. An array to wait for instead would cost ten times as much; and
whoever waits for an array that could not be computed is told of the error, of which the training then
never hears.
"""

from __future__ import annotations

import ctypes
from typing import Any, List, Tuple

from mxnet.base import _LIB, c_handle_array, check_call

#: The library, in whose calls Python is kept: to give it to another thread and to have it back takes
#: longer than what is asked here.
library = ctypes.PyDLL(_LIB._name)
_push = library.MXEnginePushSyncND

# More than any system's semaphore takes.
_SEMAPHORE_BYTES = 64
_CPU = 1
# FnProperty::kCPUPrioritized: such functions have workers of their own, and wait for no operators.
_PRIORITIZED = 3
_NONE = ctypes.c_int(0)

#: Arrays as the engine takes them: their handles, how many there are, and the arrays, which whoever has
#: handles has to keep.
Handles = Tuple[Any, ctypes.c_int, List[Any]]

# The engine may count up when the recording has long ended.
_for_ever: List[Any] = []


class _Context(ctypes.Structure):
    _fields_ = (("device_type", ctypes.c_int), ("device_id", ctypes.c_int))


def handles_of(arrays: List[Any]) -> Handles:
    """Arrays as the engine takes them."""
    return c_handle_array(arrays), ctypes.c_int(len(arrays)), arrays


class Signals:
    """One thread asks for signals, and another one waits for them, one after the other.

    Raises:
        OSError: where the system has no semaphores without names.
    """

    def __init__(self) -> None:
        system = ctypes.CDLL(None)
        semaphore = ctypes.create_string_buffer(_SEMAPHORE_BYTES)
        if system.sem_init(semaphore, 0, 0) != 0:
            raise OSError("this system has no semaphores for threads")
        _for_ever.append(semaphore)
        context, prioritized = _Context(_CPU, 0), ctypes.c_int(_PRIORITIZED)
        self._kept = context, prioritized
        self._does_nothing = ctypes.cast(system.getpid, ctypes.c_void_p)
        self._counts_up = ctypes.cast(system.sem_post, ctypes.c_void_p)
        self._semaphore = ctypes.cast(semaphore, ctypes.c_void_p)
        self._context, self._how = ctypes.byref(context), ctypes.byref(prioritized)
        self._wait, self._post = system.sem_wait, system.sem_post

    def ask(self, arrays: Handles) -> None:
        """A signal for when everything that was given to the engine to write these with is done."""
        handles, count, _ = arrays
        check_call(
            _push(
                self._does_nothing,
                self._semaphore,
                self._counts_up,
                self._context,
                handles,
                count,
                None,
                _NONE,
                self._how,
                _NONE,
                b"stallscope",
            )
        )

    def wait(self) -> None:
        """Until the next signal is there; other threads have Python meanwhile."""
        while self._wait(self._semaphore) != 0:
            # The system's own signals interrupt it.
            pass

    def give(self) -> None:
        """A signal for whoever waits, without the engine."""
        self._post(self._semaphore)

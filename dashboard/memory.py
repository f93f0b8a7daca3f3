"""Memory that was needed for a moment goes back to the system.

Taking a run apart needs some times the memory that its analysis holds, and allocators keep what is freed
in a heap of its own for every thread: threads that take turns at a run that grows would keep that peak
as many times as there are threads.
"""

from __future__ import annotations

import ctypes
from contextlib import suppress

import pyarrow as pa

# Of glibc's malloc.h.
_M_ARENA_MAX = -8
# Python lets one thread at a time make objects: with more of them nothing is faster.
_HEAPS = 2


def share_heaps() -> None:
    """Let all threads that are still to come, and Arrow, take their memory from the same few heaps.

    For a process that is a dashboard and nothing else. Where the C library is not glibc, its heaps stay
    as they are.
    """
    # Arrow's own allocator gives back what the thread that asks has freed, and no other.
    pa.set_memory_pool(pa.system_memory_pool())
    with suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, _HEAPS)


def give_back() -> None:
    """Return what is free to the system: all of it where heaps are shared, else the thread's of Arrow.

    To be called by the thread that has taken a run apart. Takes some milliseconds.
    """
    pa.default_memory_pool().release_unused()

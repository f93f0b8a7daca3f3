"""Return freed memory to the system.

An analysis needs several times the memory of its result while it runs. Allocators keep freed memory in
one heap per thread, so threads that analyse in turn would each keep such a peak.
"""

from __future__ import annotations

import ctypes
from contextlib import suppress

import pyarrow as pa

# From glibc's malloc.h.
_M_ARENA_MAX = -8
# Python creates objects in one thread at a time: more heaps would not be faster.
_HEAPS = 2


def share_heaps() -> None:
    """Let all new threads, and Arrow, allocate from the same few heaps.

    For processes that only serve a dashboard. Does nothing with C libraries other than glibc.
    """
    # Arrow's own allocator returns only what the calling thread has freed.
    pa.set_memory_pool(pa.system_memory_pool())
    with suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, _HEAPS)


def give_back() -> None:
    """Return free memory to the system: all of it if heaps are shared, else this thread's of Arrow.

    To be called by the thread that ran an analysis. Takes some milliseconds.
    """
    pa.default_memory_pool().release_unused()

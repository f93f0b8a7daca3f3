"""Read the two clocks of a host together."""

from __future__ import annotations

import time
from typing import Tuple

# The scheduler interrupted readings further apart than this: take them again.
_INTERRUPTED_NS = 50_000
_ATTEMPTS = 3

# Linux slews both clocks alike, so their difference changes only when the wall clock is set.
# Twice the error of an interrupted reading, and well above the cost of reading.
JUMP_NS = 250_000


def read_clocks() -> Tuple[int, int]:
    """Return monotonic time now, and wall time minus monotonic time, both in nanoseconds.

    The first gives durations; the second maps timestamps that exist only as wall time.
    """
    for _ in range(_ATTEMPTS):
        before = time.monotonic_ns()
        wall = time.time_ns()
        after = time.monotonic_ns()
        if after - before <= _INTERRUPTED_NS:
            break
    return before, wall - (before + after) // 2

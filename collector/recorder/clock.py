"""The two clocks of a host, read together."""

from __future__ import annotations

import time
from typing import Tuple

# A pair of readings further apart than this was interrupted by the scheduler and is taken again.
_INTERRUPTED_NS = 50_000
_ATTEMPTS = 3

# Linux slews both clocks alike, so their difference moves only when the wall clock is set.
# Twice the error that an interrupted reading can have, and well above what reading costs.
JUMP_NS = 250_000


def read_clocks() -> Tuple[int, int]:
    """Monotonic time now, and wall time minus monotonic time, both in nanoseconds.

    Durations come from the first; timestamps that only exist as wall time are mapped with the second.
    """
    for _ in range(_ATTEMPTS):
        before = time.monotonic_ns()
        wall = time.time_ns()
        after = time.monotonic_ns()
        if after - before <= _INTERRUPTED_NS:
            break
    return before, wall - (before + after) // 2

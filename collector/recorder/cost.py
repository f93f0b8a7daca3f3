"""What recording costs, counted while it goes on."""

from __future__ import annotations

import contextlib
from time import monotonic_ns
from typing import Any, Dict, Iterator, List

# The median is that of so many last turns.
_KEPT = 512


class Cost:
    """Counts of one session. Each is added to by one thread at a time."""

    __slots__ = ("_last", "background_ns", "bytes", "flushes", "host_ns", "turns")

    def __init__(self) -> None:
        #: Nanoseconds that the training thread spent in the recorder, over so many turns.
        self.host_ns = 0
        self.turns = 0
        self._last: List[int] = []
        #: Bytes that went to the log, in so many writes, and nanoseconds of a processor that took.
        self.bytes = 0
        self.flushes = 0
        self.background_ns = 0

    def turn(self, nanoseconds: int) -> None:
        """The recorder's own work around one turn of the training loop."""
        self.host_ns += nanoseconds
        if self.turns < _KEPT:
            self._last.append(nanoseconds)
        else:
            self._last[self.turns % _KEPT] = nanoseconds
        self.turns += 1

    @contextlib.contextmanager
    def besides(self) -> Iterator[None]:
        """Around the recorder's own work on the training thread that belongs to no turn."""
        begun = monotonic_ns()
        try:
            yield
        finally:
            self.host_ns += monotonic_ns() - begun

    def wrote(self, size: int) -> None:
        """One write of so many bytes."""
        self.bytes += size
        self.flushes += 1

    def fact(self) -> Dict[str, Any]:
        """The counts so far, as they stand in the log.

        Microseconds of a turn are null where there was none. The mean is larger than the median by what
        is done once, and by turns in which other threads had the processor, or Python's lock.
        """
        turns = self.turns
        return {
            "host_us_mean": round(self.host_ns / turns / 1e3, 2) if turns else None,
            "host_us_median": round(sorted(self._last)[len(self._last) // 2] / 1e3, 2)
            if turns
            else None,
            "turns": turns,
            "bytes": self.bytes,
            "flushes": self.flushes,
            "background_ms": round(self.background_ns / 1e6, 2),
        }

"""Count what recording costs."""

from __future__ import annotations

import contextlib
from time import monotonic_ns
from typing import Any, Dict, Iterator, List

# The median covers this many of the latest iterations.
_MEDIAN_OF = 512


class Cost:
    """The cost of one session; one thread at a time adds to each count."""

    __slots__ = ("_latest", "background_ns", "bytes", "flushes", "host_ns", "iterations")

    def __init__(self) -> None:
        #: Nanoseconds that the training thread spent in the recorder, and the number of iterations.
        self.host_ns = 0
        self.iterations = 0
        self._latest: List[int] = []
        #: Bytes written to the log, the number of writes, and nanoseconds of CPU time for them.
        self.bytes = 0
        self.flushes = 0
        self.background_ns = 0

    def count_iteration(self, nanoseconds: int) -> None:
        """Count the recorder's own work in one iteration of the training loop."""
        self.host_ns += nanoseconds
        if self.iterations < _MEDIAN_OF:
            self._latest.append(nanoseconds)
        else:
            self._latest[self.iterations % _MEDIAN_OF] = nanoseconds
        self.iterations += 1

    @contextlib.contextmanager
    def outside_iterations(self) -> Iterator[None]:
        """Count the recorder's own work on the training thread outside of any iteration."""
        begun = monotonic_ns()
        try:
            yield
        finally:
            self.host_ns += monotonic_ns() - begun

    def count_write(self, size: int) -> None:
        """Count a write of ``size`` bytes."""
        self.bytes += size
        self.flushes += 1

    def fact(self) -> Dict[str, Any]:
        """Return the counts so far, as the log shows them.

        Microseconds per iteration are null without an iteration. One-time work, and iterations in which
        another thread had the CPU core or Python's lock, make the mean larger than the median.
        """
        iterations = self.iterations
        return {
            "host_us_mean": round(self.host_ns / iterations / 1e3, 2) if iterations else None,
            "host_us_median": round(sorted(self._latest)[len(self._latest) // 2] / 1e3, 2)
            if iterations
            else None,
            "turns": iterations,
            "bytes": self.bytes,
            "flushes": self.flushes,
            "background_ms": round(self.background_ns / 1e6, 2),
        }

"""A fake of the parts of ``torch.cuda`` that timestamps need: machines for tests have no CUDA device.

It behaves as CUDA's and torch's documentation promise: streams run in order and asynchronously, an event
is complete when its stream has reached it, and times between complete events are float32 milliseconds on
the device's clock. Calls that would wait for the device fail. No test here shows what a real one does.
"""

from __future__ import annotations

import contextlib
import struct
import warnings
from collections.abc import Iterator
from time import monotonic_ns
from typing import Any, Callable

NEVER = 2**63
RELAXED = 2


class HostClock:
    """A host's clock that advances by a microsecond each time it is read."""

    def __init__(self) -> None:
        self.ns = 5_000_000_000

    def __call__(self) -> int:
        self.ns += 1000
        return self.ns

    def sleep(self, seconds: float) -> None:
        self.ns += int(seconds * 1e9)


class Stream:
    """A stream of work; all of it is complete at ``free_at``, on the host's clock."""

    def __init__(self) -> None:
        self.free_at = 0


class Event:
    def __init__(self, cuda: FakeCuda) -> None:
        self._cuda = cuda
        self.at: int | None = None

    def record(self, stream: Stream) -> None:
        self._cuda.check()
        self.at = max(self._cuda.now(), stream.free_at)

    def query(self) -> bool:
        self._cuda.check_query()
        return self.at is None or self._cuda.now() >= self.at

    def elapsed_time(self, end: Event) -> float:
        assert self.query(), "both events must be completed"
        assert end.query(), "both events must be completed"
        milliseconds = (self._cuda.device_ns(end.at) - self._cuda.device_ns(self.at)) / 1e6
        rounded: float = struct.unpack("f", struct.pack("f", milliseconds))[0]
        return rounded

    def synchronize(self) -> None:
        raise AssertionError("the host waited for the device")

    wait = synchronize


class FakeCuda:
    """A device.

    Args:
        now: reads the host's clock.
        drift: by how much the device's clock is faster.
        lag_ns: by how much the device always lags behind the host.
    """

    def __init__(
        self, now: Callable[[], int] = monotonic_ns, drift: float = 0.0, lag_ns: int = 0
    ) -> None:
        self.now = now
        self.drift = drift
        self.lag_ns = lag_ns
        self.events = 0
        #: The delay of a stream without work.
        self.answers_after_ns = 0
        #: Whether the device has failed.
        self.failed = False
        #: Whether a thread captures a graph, this thread's mode of capture, and whether it stays.
        self.capturing = False
        self.mode = 0
        self.refuses_modes = False
        #: As ``torch.cuda.get_sync_debug_mode`` returns it.
        self.sync_mode = 0
        #: Of the allocator.
        self.alloc_retries, self.kept_bytes, self.used_bytes = 0, 70 * 10**9, 40 * 10**9
        self.current = Stream()

    def check(self) -> None:
        if self.failed:
            raise RuntimeError("CUDA error: device-side assert triggered")

    def check_query(self) -> None:
        """Fail where a query breaks the graph that is captured, unless this thread's mode is relaxed."""
        self.check()
        if self.capturing and self.mode != RELAXED:
            raise RuntimeError("CUDA error: operation not permitted when stream is capturing")

    def exchange_mode(self, mode: int) -> int | None:
        if self.refuses_modes:
            return None
        before, self.mode = self.mode, mode
        return before

    def memory_stats_as_nested_dict(self, device: int) -> dict[str, Any]:
        return {
            "num_alloc_retries": self.alloc_retries,
            "reserved_bytes": {"all": {"peak": self.kept_bytes}},
            "allocated_bytes": {"all": {"peak": self.used_bytes}},
        }

    def get_sync_debug_mode(self) -> int:
        return self.sync_mode

    def set_sync_debug_mode(self, mode: int) -> None:
        self.sync_mode = mode
        # torch says this once in a process.
        if mode:
            warnings.warn("Synchronization debug mode is a prototype feature", stacklevel=2)

    def device_ns(self, at: int | None) -> float:
        assert at is not None
        return 77e9 + at * (1 + self.drift)

    def work(self, nanoseconds: int) -> None:
        """Give the current stream something to do."""
        self.current.free_at = max(self.now(), self.current.free_at) + nanoseconds

    def Event(self, enable_timing: bool) -> Event:  # noqa: N802 - torch's name
        assert enable_timing
        self.events += 1
        return Event(self)

    def Stream(self, device: int, priority: int) -> Any:  # noqa: N802 - torch's name
        return _Side(self)

    def current_stream(self, device: int) -> Stream:
        if self.lag_ns:
            self.current.free_at = self.now() + self.lag_ns
        return self.current

    def is_current_stream_capturing(self) -> bool:
        return self.capturing

    @contextlib.contextmanager
    def device(self, index: int) -> Iterator[None]:
        self.check()
        yield

    def synchronize(self, device: Any = None) -> None:
        raise AssertionError("the host waited for the device")


class _Side(Stream):
    """A stream without work: it is free at once, or after the device's delay."""

    def __init__(self, cuda: FakeCuda) -> None:
        self._cuda = cuda

    @property
    def free_at(self) -> int:
        return self._cuda.now() + self._cuda.answers_after_ns

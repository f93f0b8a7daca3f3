"""When a CUDA device gets to a point of its work, on the host's clock, and without waiting for it.

A timestamp is an event on the stream that is current; it is read later, once ``query`` says that the
stream has got there. Nothing here synchronizes. Events know the time between each other only. What
ties them to the host's clock are anchors: events on a stream of their own, on which nothing runs, so
that the host sees them done at once, and when that was to within a few microseconds. Between two
anchors time is interpolated, so that clocks that drift apart move no timestamp against the next by
more than that.

An event's time is a float32 of milliseconds, counted from the anchor before it: 0.1 µs at a second.
"""

from __future__ import annotations

import contextlib
from collections import deque
from time import monotonic_ns
from typing import Any, Callable, ContextManager, Deque, List, NamedTuple, Optional

# An anchor is taken again while it is known worse than this, a few times.
_GOOD_NS = 40_000
_ATTEMPTS = 2
# A host that was interrupted for longer saw nothing; a stream that takes longer has to wait itself. So
# much of a fifth of a second is the most that anchors take from training: two in a thousand.
_WORST_NS = 200_000
# Anchors are this far apart at least, and a device that is further behind than all of them has lost its
# stamps: that is 51 s.
_APART_NS = 200_000_000
_ANCHORS = 256
# Clocks drift by up to 100 µs a second: with no later anchor a timestamp is not told from further away.
_FURTHEST_MS = 1000.0
_NS = 1_000_000


class Anchor(NamedTuple):
    """A moment on both clocks."""

    event: Any
    #: Milliseconds of the device's clock from its first anchor.
    device_ms: float
    #: Monotonic nanoseconds.
    host_ns: float


class Stamp(NamedTuple):
    """An event, and the anchor that was there before it."""

    event: Any
    anchor: Anchor


class CudaClock:
    """Timestamps of one CUDA device.

    Taken by the threads that train, and read by the one whose loop it is; ``cuda`` is ``torch.cuda``.
    """

    def __init__(self, cuda: Any, index: int, now: Callable[[], int] = monotonic_ns) -> None:
        self._cuda = cuda
        self._index = index
        self._now = now
        self._side = cuda.Stream(device=index, priority=-1)
        self._free: List[Any] = []
        self._anchors: Deque[Anchor] = deque(maxlen=_ANCHORS)
        #: The most that a timestamp can be off on the host's clock, in nanoseconds; None before the
        #: first.
        self.error_ns: Optional[int] = None
        #: What the device said when it could not be asked any more.
        self.broken: Optional[str] = None
        with self.asked():
            self.look()

    @property
    def is_capturing(self) -> bool:
        """Whether this thread captures a graph."""
        try:
            return self.broken is None and bool(self._cuda.is_current_stream_capturing())
        except Exception as error:  # it is the training's own, which hears of it soon enough
            self.broken = repr(error)
            return False

    def stamp(self) -> Optional[Stamp]:
        """A timestamp of what the current stream has been given so far.

        None while a graph is captured, before there is an anchor, and once the device is broken.
        """
        if self.broken is not None or not self._anchors:
            return None
        try:
            if self.is_capturing:
                return None
            event = self._free.pop() if self._free else self._event()
            event.record(self._cuda.current_stream(self._index))
            return Stamp(event, self._anchors[-1])
        except Exception as error:  # it is the training's own, which hears of it soon enough
            self.broken = repr(error)
            return None

    def asked(self) -> ContextManager[Any]:
        """Around ``look``, ``reached`` and ``time_of``: a thread that asks makes this device its own.

        Otherwise it would be given memory on the first device.
        """
        if self.broken is not None:
            return contextlib.nullcontext()
        found: ContextManager[Any] = self._cuda.device(self._index)
        return found

    def look(self) -> None:
        """Take another anchor, where it is time for one and the device answers quickly enough."""
        if self._anchors and self._now() - self._anchors[-1].host_ns < _APART_NS:
            return
        best: Optional[Anchor] = None
        least = _WORST_NS
        for _ in range(_ATTEMPTS):
            event = self._event()
            before = self._now()
            event.record(self._side)
            while not event.query() and self._now() - before < _WORST_NS:
                pass
            after = self._now()
            if not event.query():
                break
            if after - before < least:
                least = after - before
                best = Anchor(event, self._device_ms(event), (before + after) / 2)
            if least <= _GOOD_NS:
                break
        if best is not None:
            self._anchors.append(best)
            self.error_ns = max(self.error_ns or 0, least // 2)

    def reached(self, stamp: Stamp) -> bool:
        return bool(stamp.event.query())

    def time_of(self, stamp: Optional[Stamp]) -> Optional[int]:
        """Monotonic nanoseconds of a timestamp that was reached.

        None without one, and for one so far from all anchors that nothing ties it to the host's clock.
        """
        if stamp is None:
            return None
        device_ms = stamp.anchor.device_ms + stamp.anchor.event.elapsed_time(stamp.event)
        later: Optional[Anchor] = None
        for anchor in reversed(self._anchors):
            since_ms = device_ms - anchor.device_ms
            if since_ms >= 0:
                if later is None and since_ms > _FURTHEST_MS:
                    return None
                return int(anchor.host_ns + since_ms * _rate(anchor, later))
            later = anchor
        return None

    def release(self, stamps: List[Stamp]) -> None:
        """Use the events of these timestamps again: they are not read any more."""
        self._free.extend({id(stamp.event): stamp.event for stamp in stamps}.values())

    def _event(self) -> Any:
        return self._cuda.Event(enable_timing=True)

    def _device_ms(self, event: Any) -> float:
        if not self._anchors:
            return 0.0
        last = self._anchors[-1]
        return float(last.device_ms + last.event.elapsed_time(event))


def _rate(anchor: Anchor, later: Optional[Anchor]) -> float:
    """Nanoseconds of the host per millisecond of the device, between two anchors."""
    if later is None or later.device_ms <= anchor.device_ms:
        return float(_NS)
    return (later.host_ns - anchor.host_ns) / (later.device_ms - anchor.device_ms)

"""Timestamp a CUDA device's work on the host's clock, without waiting for the device.

A timestamp is an event on the current stream. It is read later, once ``query`` says that the stream has
reached it. Nothing here synchronizes. Events only give the time between each other. Anchors tie them to
the host's clock: events on a separate, idle stream, which the host sees done within a few microseconds.
Times between two anchors are interpolated, so that drifting clocks shift no timestamp against the next
by more than that.

An event's time is a float32 of milliseconds since the anchor before it: 0.1 µs precision at a second.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections import deque
from time import monotonic_ns
from typing import Any, Callable, ContextManager, Deque, Iterator, List, NamedTuple, Optional, Tuple

# Take an anchor again while its error is above this, a few times.
_GOOD_NS = 40_000
_ATTEMPTS = 2
# After a longer interruption of the host an anchor is useless, and a busier device gets none now.
# Anchors take at most this from every fifth of a second, two in a thousand; on a device that other
# processes keep busy, from every reading until there is one.
_WORST_NS = 200_000
# The shortest time between anchors. A device that lags by more than all of them, 51 s, has lost its
# timestamps.
_APART_NS = 200_000_000
_ANCHORS = 256
# Clocks drift by up to 100 µs per second: without a later anchor, no timestamp is read beyond this.
_FURTHEST_MS = 1000.0
# A device that other processes use may give no anchor at first. Timestamps wait this long for one, and
# are then placed before it.
_FIRST_ANCHOR_NS = 3_000_000_000
_NS = 1_000_000


# CUDA's number of the mode in which a thread's queries break no graph that is captured.
_RELAXED = 2
_NOTHING: ContextManager[Any] = contextlib.nullcontext()
#: Sets the calling thread's mode of capture and returns the one before; None if that failed.
ExchangeMode = Callable[[int], Optional[int]]


class Anchor(NamedTuple):
    """A moment on both clocks."""

    event: Any
    #: Milliseconds of the device's clock since its first anchor.
    device_ms: float
    #: Monotonic nanoseconds.
    host_ns: float


#: An event, and the latest anchor before it, None before the first one. A bare tuple: a named one takes
#: longer to make than the event takes to record.
CudaTimestamp = Tuple[Any, Optional[Anchor]]


class CudaClock:
    """Timestamps of one CUDA device.

    Training threads take them, and one thread at a time reads them. Any thread may place what was read
    on the host's clock, and release events.

    Args:
        cuda: ``torch.cuda``.
        index: the device's number.
        stream_of: returns what identifies the current stream of a device, faster than ``torch.cuda``
            makes its object.
        exchange_mode: as ``capture_mode_exchange`` returns it: with it any thread may query the device
            at any time.
    """

    def __init__(
        self,
        cuda: Any,
        index: int,
        now: Callable[[], int] = monotonic_ns,
        stream_of: Optional[Callable[[int], Any]] = None,
        exchange_mode: Optional[ExchangeMode] = None,
    ) -> None:
        self._exchange_mode = exchange_mode
        self._cuda = cuda
        #: The device's number.
        self.index = index
        self._now = now
        self._stream_of = stream_of
        self._captures = cuda.is_current_stream_capturing
        # The id of the last current stream, and its object.
        self._current: Tuple[Any, Any] = (None, None)
        self._side = cuda.Stream(device=index, priority=-1)
        self._free: List[Any] = []
        self._anchors: Deque[Anchor] = deque(maxlen=_ANCHORS)
        #: The largest error of a timestamp on the host's clock, in nanoseconds; None before the first.
        self.error_ns: Optional[int] = None
        #: The device's error, once it no longer answers.
        self.broken: Optional[str] = None
        self._first_anchor_by = now() + _FIRST_ANCHOR_NS
        with self.queried():
            self.take_anchor()

    @property
    def is_capturing(self) -> bool:
        """Return whether this thread captures a CUDA graph."""
        try:
            return self.broken is None and bool(self._captures())
        except Exception as error:  # training will meet the same error
            self.broken = repr(error)
            return False

    @property
    def is_read_beside(self) -> bool:
        """Return whether any thread may query the device while another one captures its graphs."""
        return self._exchange_mode is not None

    def timestamp(self) -> Optional[CudaTimestamp]:
        """Take a timestamp after the work that was given to the current stream so far.

        None while a graph is captured, once the device is broken, and while a first anchor is overdue.
        """
        try:
            return None if self._captures() else self.timestamp_outside_captures()
        except Exception as error:  # training will meet the same error
            self.broken = repr(error)
            return None

    def timestamp_outside_captures(self) -> Optional[CudaTimestamp]:
        """Take a timestamp, like ``timestamp``, where certainly no graph is captured.

        Training has evicted the driver's code from the CPU's caches: to ask takes microseconds.
        """
        anchors, free = self._anchors, self._free
        if self.broken is not None or (not anchors and self._is_overdue()):
            return None
        try:
            event = free.pop() if free else self._event()
            known, stream = self._current
            if self._stream_of is None or self._stream_of(self.index) != known:
                stream = self._changed_stream()
            event.record(stream)
            return event, anchors[-1] if anchors else None
        except Exception as error:  # training will meet the same error
            self.broken = repr(error)
            return None

    @contextlib.contextmanager
    def queried(self) -> Iterator[bool]:
        """Select this device for ``take_anchor`` and ``read``; yield whether the thread may query it.

        Unselected, the thread would get memory on the first device.
        """
        exchange = self._exchange_mode
        before = None if exchange is None else exchange(_RELAXED)
        if before is None:
            self._exchange_mode = exchange = None
        try:
            if exchange is None and self.is_capturing:
                yield False
            else:
                with self._cuda.device(self.index) if self.broken is None else _NOTHING:
                    yield True
        finally:
            if exchange is not None and before is not None:
                exchange(before)

    def take_anchor(self) -> None:
        """Take another anchor if it is due and the device answers quickly enough."""
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

    def read(self, timestamps: List[CudaTimestamp]) -> Optional[List[float]]:
        """Return the device's milliseconds of timestamps; None until all of them are reached.

        Empty where no anchor ties them to a clock.
        """
        # Timestamps of other streams may come later.
        for event, _ in timestamps:
            if not event.query():
                return None
        if not self._anchors:
            return [] if self._is_overdue() else None
        first = self._anchors[0]
        anchored = [(event, anchor or first) for event, anchor in timestamps]
        return [anchor.device_ms + anchor.event.elapsed_time(event) for event, anchor in anchored]

    def time_of(self, device_ms: Optional[float]) -> Optional[int]:
        """Return monotonic nanoseconds of the device's milliseconds.

        None without them, and for a time too far from all anchors to tie to the host's clock.
        """
        if device_ms is None:
            return None
        later: Optional[Anchor] = None
        # A copy: another thread takes anchors.
        for anchor in reversed(list(self._anchors)):
            since_ms = device_ms - anchor.device_ms
            if since_ms >= 0:
                if later is None and since_ms > _FURTHEST_MS:
                    return None
                return _placed(since_ms, anchor, later)
            later = anchor
        if later is None or (later.device_ms - device_ms) * _NS > _FIRST_ANCHOR_NS:
            return None
        # The next anchor is too near to tell the drift.
        return _placed(device_ms - later.device_ms, later, None)

    def release(self, timestamps: List[CudaTimestamp]) -> None:
        """Reuse the events of these timestamps, which are not read again."""
        self._free.extend({id(event): event for event, _ in timestamps}.values())

    def _is_overdue(self) -> bool:
        """Return whether a first anchor would have been there by now."""
        return self._now() > self._first_anchor_by

    def _changed_stream(self) -> Any:
        stream = self._cuda.current_stream(self.index)
        if self._stream_of is not None:
            self._current = self._stream_of(self.index), stream
        return stream

    def _event(self) -> Any:
        return self._cuda.Event(enable_timing=True)

    def _device_ms(self, event: Any) -> float:
        if not self._anchors:
            return 0.0
        last = self._anchors[-1]
        return float(last.device_ms + last.event.elapsed_time(event))


def capture_mode_exchange() -> Optional[ExchangeMode]:
    """Return a function that sets the calling thread's mode of capture; None without NVIDIA's driver.

    ``torch.cuda`` has none. See cuThreadExchangeStreamCaptureMode in CUDA's driver API.
    """
    try:
        driver = ctypes.CDLL("nvcuda.dll" if os.name == "nt" else "libcuda.so.1")
        function = driver.cuThreadExchangeStreamCaptureMode
    except (OSError, AttributeError):
        return None

    def exchange(mode: int) -> Optional[int]:
        exchanged = ctypes.c_int(mode)
        return exchanged.value if function(ctypes.byref(exchanged)) == 0 else None

    return exchange


def _placed(since_ms: float, anchor: Anchor, later: Optional[Anchor]) -> int:
    """Return the host's nanoseconds of a moment since an anchor, which is negative before it."""
    return int(anchor.host_ns + since_ms * _rate(anchor, later))


def _rate(anchor: Anchor, later: Optional[Anchor]) -> float:
    """Return the host's nanoseconds per millisecond of the device, between two anchors."""
    if later is None or later.device_ms <= anchor.device_ms:
        return float(_NS)
    return (later.host_ns - anchor.host_ns) / (later.device_ms - anchor.device_ms)

"""Find what a device waits for: lines that read values from it, memory that is full, and copies.

A host that waits for the device no longer runs ahead, and the device idles until the next kernels
arrive. torch can warn of each wait (``torch.cuda.set_sync_debug_mode``). The recorder
lets it do so for a second now and then, on all threads, and counts the warnings instead of showing them.

Where no memory is left, torch's allocator waits for the device, gives all memory back that it keeps, and
asks again. It counts these retries. Copies of batches to the device are timed now and then, where a
library makes them. All this costs training next to nothing in a step.
"""

from __future__ import annotations

import functools
import math
import sys
import threading
import warnings
from collections import Counter, deque
from time import monotonic_ns
from typing import Any, Callable, Deque, Dict, List, Optional, Tuple

from ..guards import patch
from ..hangs import Frame, frames_of, is_users
from ..job.job_facts import known
from .cuda import CudaClock, CudaTimestamp

# Of torch's own warnings.
_OF_A_SYNC = "called a synchronizing CUDA operation"
_OF_THE_MODE = "Synchronization debug mode is a prototype"
_WARN, _OFF = 1, 0
# The first steps build caches, and look at more values.
_WARM_UP_STEPS = 20
# Windows begin this long after each other; the last pause is repeated.
_PAUSES_NS = (60_000_000_000, 600_000_000_000)
# A window ends once it has as many steps, or after this time.
_FEWEST_STEPS = 5
_LONGEST_NS = 60_000_000_000
# A warning costs some 20 µs: a window costs at most 40 ms, whatever training does.
_MOST_WARNINGS = 2000
_MOST_LINES = 8
# Times between two looks at the allocator in which there were retries.
_MOST_SPANS = 64


class HostSyncs:
    """Counts the synchronizations of a few steps; the flushing thread calls ``turn``.

    Args:
        cuda: ``torch.cuda``.
        steps: returns how many iterations the host has ended; called on any thread.
        now: monotonic nanoseconds.
    """

    def __init__(
        self, cuda: Any, steps: Callable[[], int], now: Callable[[], int] = monotonic_ns
    ) -> None:
        self._cuda = cuda
        self._steps = steps
        self._now = now
        self._windows = 0
        self._next_at = 0
        # Of the window that is open: its start, its first step and, once full, its last.
        self._open_since: Optional[int] = None
        self._first_step = 0
        self._last_step: Optional[int] = None
        self._lines: Counter[Frame] = Counter()
        self._show: Any = None
        self._lock = threading.Lock()

    def turn(self, closing: bool = False) -> Optional[Dict[str, Any]]:
        """Open or close a window if it is time; return the facts of one that has been closed."""
        if self._open_since is None:
            if not closing and self._now() >= self._next_at and self._steps() >= _WARM_UP_STEPS:
                self._open()
            return None
        last_step = self._last_step
        is_full = last_step is not None
        steps = (self._steps() if last_step is None else last_step) - self._first_step
        is_over = steps >= _FEWEST_STEPS or self._now() - self._open_since >= _LONGEST_NS
        if not (is_full or is_over or closing):
            return None
        self._close()
        # Half a step at either end would make much of a few.
        return self._facts(steps) if steps >= (1 if is_full else _FEWEST_STEPS) else None

    def close(self) -> None:
        """Close the window that is open, without its facts; also on the flushing thread."""
        if self._open_since is not None:
            self._close()

    def _open(self) -> None:
        pause = _PAUSES_NS[min(self._windows, len(_PAUSES_NS) - 1)]
        self._windows += 1
        self._next_at = self._now() + pause
        # The user's own setting stays.
        if self._cuda.get_sync_debug_mode() != _OFF:
            return
        self._lines.clear()
        self._last_step = None
        self._show = warnings.showwarning
        warnings.showwarning = self._shown  # type: ignore[assignment]  # its names are no part of it
        # In front of the user's filters, one of which may make warnings errors.
        warnings.filterwarnings("always", _OF_A_SYNC)
        warnings.filterwarnings("ignore", _OF_THE_MODE)
        self._cuda.set_sync_debug_mode(_WARN)
        self._open_since, self._first_step = self._now(), self._steps()

    def _close(self) -> None:
        self._cuda.set_sync_debug_mode(_OFF)
        self._open_since = None
        if warnings.showwarning == self._shown:
            warnings.showwarning = self._show
        ours = (_OF_A_SYNC, _OF_THE_MODE)
        kept = [entry for entry in warnings.filters if _message_of(entry) not in ours]
        warnings.filters[:] = kept  # type: ignore[index]  # a list, though typeshed says Sequence

    def _shown(self, message: Any, category: Any, filename: str, lineno: int, *more: Any) -> None:
        """Count a synchronization; pass every other warning on."""
        if not str(message).startswith(_OF_A_SYNC):
            self._show(message, category, filename, lineno, *more)
            return
        frames = frames_of(sys._getframe(1))
        with self._lock:
            self._lines[_named(frames, (filename, lineno, ""))] += 1
            if self._last_step is None and sum(self._lines.values()) >= _MOST_WARNINGS:
                self._last_step = self._steps()
                self._cuda.set_sync_debug_mode(_OFF)

    def _facts(self, steps: int) -> Dict[str, Any]:
        per_step = sum(self._lines.values()) / steps
        lines = [
            {"at": list(frame), "per_step": round(count / steps, 2)}
            for frame, count in self._lines.most_common(_MOST_LINES)
        ]
        return {"host_syncs": {"steps": steps, "per_step": round(per_step, 2), "lines": lines}}


class AllocatorRetries:
    """Counts the retries of torch's allocator; the flushing thread calls ``turn``.

    Args:
        cuda: ``torch.cuda``.
        index: the device's number.
        next_step: returns the number of the next step.
    """

    def __init__(self, cuda: Any, index: int, next_step: Callable[[], int]) -> None:
        self._cuda = cuda
        self._index = index
        self._next_step = next_step
        self._seen: Optional[int] = None
        self._step = 0
        self._count = 0
        # The first and the last step between two looks, and the retries then.
        self._spans: List[List[int]] = []

    def turn(self) -> Optional[Dict[str, Any]]:
        """Return the facts of all retries so far, where there are new ones since the last call."""
        statistics = self._cuda.memory_stats_as_nested_dict(self._index)
        retries, step = statistics["num_alloc_retries"], self._next_step()
        before, self._seen = self._seen, retries
        first, self._step = self._step, step
        if before is None or retries <= before:
            return None
        self._count += retries - before
        if len(self._spans) < _MOST_SPANS:
            self._spans.append([first, step, retries - before])
        kept = statistics["reserved_bytes"]["all"]["peak"]
        used = statistics["allocated_bytes"]["all"]["peak"]
        described = {"count": self._count, "spans": self._spans[:]}
        return {"allocator_retries": {**described, "kept_bytes": kept, "used_bytes": used}}


#: Functions that copy batches to the device, in modules of libraries that run the loop or its loader.
#: torch's own methods cannot be replaced: subclasses of tensors tell them by their identity.
_COPYING = (
    ("accelerate.data_loader", "send_to_device"),
    ("lightning.pytorch.core.hooks", "move_data_to_device"),
    ("pytorch_lightning.core.hooks", "move_data_to_device"),
    ("lightning.fabric.wrappers", "move_data_to_device"),
    ("lightning_fabric.wrappers", "move_data_to_device"),
)
# One in so many copies is timed, after the first ones.
_COPIES = 64
_MOST_UNREAD = 256


class DeviceCopies:
    """Times some copies of batches to the device, with a timestamp before and after them on its stream.

    The training thread makes the copies, and the flushing thread calls ``turn``.

    Args:
        device: the device's clock.
        in_iteration: returns None outside of iterations of training, as evaluations copy, too; else
            whether the iteration has its batch already.
        bytes_of: returns the bytes of a batch.
    """

    def __init__(
        self,
        device: CudaClock,
        in_iteration: Callable[[], Optional[bool]],
        bytes_of: Callable[[Any], int],
    ) -> None:
        self._device = device
        self._in_iteration = in_iteration
        self._bytes_of = bytes_of
        self._thread = threading.get_ident()
        self._left = _WARM_UP_STEPS
        self._unread: Deque[Tuple[CudaTimestamp, CudaTimestamp]] = deque(maxlen=_MOST_UNREAD)
        self._bytes = 0
        # Whether the last copy was a part of the wait for its batch.
        self._in_input = False
        self._ms: List[float] = []

    def watch(self) -> List[Callable[[], None]]:
        """Time the functions of libraries that are imported; return what restores them."""
        undo = []
        for module_name, name in _COPYING:
            module = sys.modules.get(module_name)
            copy = getattr(module, name, None)
            if copy is not None:
                undo.append(patch(module, name, self._timed(copy)))
        return undo

    def _timed(self, copy: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(copy)
        def timed(*args: Any, **kwargs: Any) -> Any:
            self._left -= 1
            if self._left > 0 or threading.get_ident() != self._thread:
                return copy(*args, **kwargs)
            has_batch = self._in_iteration()
            if has_batch is None:
                return copy(*args, **kwargs)
            self._left, self._in_input = _COPIES, not has_batch
            before = self._device.timestamp()
            batch = copy(*args, **kwargs)
            after = self._device.timestamp()
            if before is not None and after is not None:
                self._unread.append((before, after))
                self._bytes = known(lambda: self._bytes_of(batch)) or 0
            return batch

        return timed

    def turn(self, closing: bool = False) -> Optional[Dict[str, Any]]:
        """Return the facts of all copies so far, where there are new ones since the last call."""
        count = len(self._ms)
        if self._unread and (closing or self._device.is_read_beside):
            with self._device.queried() as may_query:
                while may_query and self._unread:
                    read = self._device.read([*self._unread[0]])
                    if read is None:
                        break
                    copied = self._unread.popleft()
                    self._device.release([*copied])
                    if read:
                        self._ms.append(read[1] - read[0])
        if len(self._ms) == count:
            return None
        mean = sum(self._ms) / len(self._ms)
        square = sum((ms - mean) ** 2 for ms in self._ms) / max(1, len(self._ms) - 1)
        figures = {"us": round(1e3 * mean, 1), "us_sd": round(1e3 * math.sqrt(square), 1)}
        about = {"bytes": self._bytes, "in_input": self._in_input}
        return {"device_copies": {"timed": len(self._ms), **figures, **about}}


def _named(frames: List[Frame], otherwise: Frame) -> Frame:
    """Return the innermost frame of the user's code, else where the warning says."""
    return next(filter(is_users, frames), otherwise)


def _message_of(entry: Any) -> Optional[str]:
    """Return the pattern of a filter's message."""
    return getattr(entry[1], "pattern", None)

"""Time when the results of a compiled step are ready, without making training wait."""

from __future__ import annotations

import atexit
import queue
import threading
import time
from collections import deque
from time import monotonic_ns
from typing import Any, Deque, Optional

# A device that takes longer for the last steps must not delay an interval or the end of training.
_PATIENCE_NS = 5_000_000_000
_PAUSE_SECONDS = 0.001

# Follows the last results in the queue.
_NO_MORE = object()


class ResultTimes:
    """Waits for arrays, in order, on a separate thread.

    All outputs of a compiled function are ready at once, so one of them stands for the step.
    """

    def __init__(self) -> None:
        #: For each array: the monotonic time in nanoseconds when it was ready; None after an error.
        self.done: Deque[Optional[int]] = deque()
        #: The first error of waiting; None without one.
        self.error: Optional[Exception] = None
        self._given = self._reported = 0
        self._stopped = False
        self._before: Any = None
        self._waiting: "queue.SimpleQueue[Any]" = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._wait, name="stallscope-jax", daemon=True)

    def start(self) -> None:
        self._thread.start()
        atexit.register(self._join)

    def stop(self) -> None:
        """End the thread after the array that it waits for."""
        self._stopped = True
        self._waiting.put(_NO_MORE)
        if self._reported == self._given:
            atexit.unregister(self._join)

    def _join(self) -> None:
        """Wait for the thread: Python aborts if it ends while a thread is inside JAX.

        JAX itself waits for its devices when Python ends, so this takes no longer.
        """
        self._waiting.put(_NO_MORE)
        self._thread.join()

    def add(self, array: Any) -> None:
        """Note an array that a step computes; None stands for a step without one.

        Raises:
            ValueError: if the step after an earlier array has deleted it.
            Exception: whatever waiting for an earlier array has raised.
        """
        if _is_deleted(self._before):
            # Its time may have been missed.
            raise _donated()
        self._before = array
        if self._reported == self._given and _is_ready(array):
            # Already ready: no thread has to wake up.
            self.done.append(monotonic_ns())
            self._reported += 1
        else:
            self._waiting.put(array)
        self._given += 1
        if self.error is not None:
            raise self.error

    def settle(self) -> None:
        """Wait until all arrays are ready, for five seconds at most."""
        deadline = monotonic_ns() + _PATIENCE_NS
        while self._reported < self._given and monotonic_ns() < deadline:
            time.sleep(_PAUSE_SECONDS)

    def _wait(self) -> None:
        while True:
            array = self._waiting.get()
            if array is _NO_MORE or self._stopped:
                return
            done = None
            try:
                if array is not None:
                    array.block_until_ready()
                    done = monotonic_ns()
            except Exception as error:  # raised on the training thread, which ends the recording
                self.error = self.error or _plainer(error, array)
            self.done.append(done)
            self._reported += 1


def _is_ready(array: Any) -> bool:
    """Return whether the array is known to be computed already."""
    # Old versions lack the method.
    is_ready = getattr(array, "is_ready", None)
    return is_ready is not None and bool(is_ready())


def _plainer(error: Exception, array: Any) -> Exception:
    return _donated() if _is_deleted(array) else error


def _is_deleted(array: Any) -> bool:
    is_deleted = getattr(array, "is_deleted", None)
    return is_deleted is not None and bool(is_deleted())


def _donated() -> Exception:
    return ValueError(
        "the next step deletes these results (donate_argnums); give others, such as the loss"
    )

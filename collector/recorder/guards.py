"""Keep the recorder's errors and its own work out of training's way."""

from __future__ import annotations

import functools
import threading
import time
from typing import Any, Callable, Deque, Iterator, TypeVar

# Long enough for a waiting thread to wake up and take Python's lock.
_MOMENT = 1e-5
# Rows that take a fraction of a millisecond; Python switches threads every 5 ms.
_IN_ONE_GO = 32

_this_thread = threading.local()

Method = Callable[..., None]
Item = TypeVar("Item")


def never_raises(method: Method) -> Method:
    """Wrap a method of a recording: any error ends the recording with one warning (``fail``)."""

    @functools.wraps(method)
    def guarded(self: Any, *args: Any, **kwargs: Any) -> None:
        try:
            method(self, *args, **kwargs)
        except Exception as error:  # no error may reach training
            self.fail(error)

    return guarded


def while_running(method: Method) -> Method:
    """Like ``never_raises``, for a method that does nothing unless the recording runs (``running``)."""

    @functools.wraps(method)
    def guarded(self: Any, *args: Any, **kwargs: Any) -> None:
        if self.running:
            try:
                method(self, *args, **kwargs)
            except Exception as error:  # no error may reach training
                self.fail(error)

    return guarded


def mark_background_thread() -> None:
    """Mark this thread as one of the recorder's own, so that ``yield_to_training`` pauses it."""
    _this_thread.is_background = True


def yield_to_training(done: int) -> None:
    """Give the training thread a chance to run; called after each of many pieces of work.

    Args:
        done: pieces of work done so far.
    """
    if done % _IN_ONE_GO == 0 and getattr(_this_thread, "is_background", False):
        time.sleep(_MOMENT)


def take_ready(
    waiting: Deque[Item], is_ready: Callable[[Item], bool] = lambda _: True
) -> Iterator[Item]:
    """Take items out of a queue, in order, up to the first that is not ready; yield to training."""
    done = 0
    while waiting and is_ready(waiting[0]):
        yield waiting.popleft()
        done += 1
        yield_to_training(done)

"""What keeps a recorder's own mistakes, and its own work, out of training's way."""

from __future__ import annotations

import functools
import threading
import time
from typing import Any, Callable

# Long enough for a thread that waits to wake up: one that asks again at once gets Python first.
_MOMENT = 1e-5
# Rows that take a fraction of a millisecond; Python's own turns are 5 ms.
_IN_ONE_GO = 32

_this_thread = threading.local()

Method = Callable[..., None]


def never_raises(method: Method) -> Method:
    """Whatever fails in a method of a recording ends that with one warning (``fail``), nothing else."""

    @functools.wraps(method)
    def guarded(self: Any, *args: Any, **kwargs: Any) -> None:
        try:
            method(self, *args, **kwargs)
        except Exception as error:  # whatever it is, it may not reach training
            self.fail(error)

    return guarded


def while_running(method: Method) -> Method:
    """The same of a method that does nothing unless the recording runs (``running``)."""

    @functools.wraps(method)
    def guarded(self: Any, *args: Any, **kwargs: Any) -> None:
        if self.running:
            try:
                method(self, *args, **kwargs)
            except Exception as error:  # whatever it is, it may not reach training
                self.fail(error)

    return guarded


def gives_way_to_others() -> None:
    """This thread is one of the recorder's own: ``let_others_run`` does something in it."""
    _this_thread.gives_way = True


def let_others_run(done: int) -> None:
    """To be called after every one of many pieces of work: hands Python to the training thread in time.

    Args:
        done: how many there were up to now.
    """
    if done % _IN_ONE_GO == 0 and getattr(_this_thread, "gives_way", False):
        time.sleep(_MOMENT)

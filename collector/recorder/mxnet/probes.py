"""When gradients are there, and when they are reduced, without waiting for them in the training.

MXNet's engine runs behind the host's back. A signal that is asked for in front of the reduction comes
when the last gradient is there; another one behind it, when the last is reduced. A thread waits for
them.
"""

from __future__ import annotations

import threading
from collections import deque
from time import monotonic_ns
from typing import Any, Deque, Iterable, Optional

from .engine import Handles, Signals, handles_of

# To look which gradients there are takes longer than all the rest.
_LOOKED_AT = 64
# The operators of layers write these gradients together, so one of them tells of both; every array that
# the engine has to look at costs half a microsecond.
_WRITTEN_WITH = {"bias": "weight", "beta": "gamma"}


class GradientProbe:
    """Tells when the engine is through with all gradients of a trainer.

    ``times`` has the monotonic nanoseconds of what was asked, in order, as far as it is done; whoever
    takes them takes them out.
    """

    def __init__(self, trainer: Any) -> None:
        self.times: Deque[int] = deque()
        self._parameters = trainer._params
        self._signals = Signals()
        # What tells of all gradients when operators write them, and when each of them is reduced.
        self._written: Optional[Handles] = None
        self._reduced: Optional[Handles] = None
        self._left = 0
        self._closed = False
        threading.Thread(target=self._take_times, name="stallscope-mxnet", daemon=True).start()

    def look_again(self) -> None:
        """Layers get frozen between epochs, and others get unfrozen."""
        self._left = 0

    def ask(self, reduced: bool = False) -> None:
        """Have a time taken when all gradients are as the engine was told to make them up to here.

        Args:
            reduced: whether the last thing that it was told is to reduce them, each by itself.
        """
        if self._written is None or self._left <= 0:
            self._look()
        self._left -= 1
        handles = self._reduced if reduced else self._written
        assert handles is not None
        self._signals.ask(handles)

    def close(self) -> None:
        """End the thread; nobody asks any more."""
        self._closed = True
        self._signals.give()

    def _take_times(self) -> None:
        while True:
            self._signals.wait()
            if self._closed:
                return
            self.times.append(monotonic_ns())

    def _look(self) -> None:
        self._left = _LOOKED_AT
        trained = {one.name: one for one in self._parameters if one.grad_req != "null"}
        told = [one for name, one in trained.items() if _told_by(name) not in trained]
        self._written = _handles(told)
        self._reduced = _handles(trained.values())


def _handles(parameters: Iterable[Any]) -> Handles:
    return handles_of([gradient for one in parameters for gradient in one.list_grad()])


def _told_by(name: str) -> Optional[str]:
    """The parameter whose gradient the same operator writes; None where there is none."""
    layer, _, kind = name.rpartition("_")
    other = _WRITTEN_WITH.get(kind)
    return None if other is None else "%s_%s" % (layer, other)

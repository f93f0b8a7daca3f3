"""When gradients are there, and when they are reduced, without waiting for them in the training.

MXNet's engine runs behind the host's back. A signal that is asked for in front of the reduction comes
when the last gradient is there; another one behind it, when the last is reduced. A thread waits for
them.
"""

from __future__ import annotations

import threading
from collections import deque
from time import monotonic_ns
from typing import Any, Deque, List, Optional

from .engine import Handles, Signals, handles_of

# To look which gradients there are takes longer than all the rest.
_LOOKED_AT = 64


class GradientProbe:
    """Tells when the engine is through with all gradients of a trainer.

    ``times`` has the monotonic nanoseconds of what was asked, in order, as far as it is done; whoever
    takes them takes them out.
    """

    def __init__(self, trainer: Any) -> None:
        self.times: Deque[int] = deque()
        self._parameters = trainer._params
        self._signals = Signals()
        self._gradients: List[Any] = []
        self._handles: Optional[Handles] = None
        self._left = 0
        self._closed = False
        threading.Thread(target=self._take_times, name="stallscope-mxnet", daemon=True).start()

    def look_again(self) -> None:
        """Layers get frozen between epochs, and others get unfrozen."""
        self._left = 0

    def ask(self) -> None:
        """Have a time taken when all gradients are as the engine was told to make them up to here."""
        if self._handles is None or self._left <= 0:
            self._look()
        self._left -= 1
        assert self._handles is not None
        self._signals.ask(self._handles)

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
        self._gradients = [
            gradient
            for parameter in self._parameters
            if parameter.grad_req != "null"
            for gradient in parameter.list_grad()
        ]
        self._handles = handles_of(self._gradients)

"""Count the time that a rank spends in collectives before its gradients are ready.

In a collective a rank waits for the slowest one: then all ranks' gradients are ready at the same time,
and all look equally slow. Each rank's own work is the rest: see ``loop_steps.Reduction.waited``.
"""

from __future__ import annotations

import functools
import threading
from time import monotonic_ns
from typing import Any, Callable, List, Optional, Tuple

Function = Callable[..., Any]
#: Timestamps of a device before and after each collective.
Pairs = Tuple[Tuple[Any, Any], ...]

# A bound for steps on a device that never end.
_MOST_PAIRS = 4096


class Waits:
    """The time in collectives since the reduction of the previous step.

    Args:
        iteration_began: returns when the running iteration of the training loop began; None between
            iterations, and until a batch is there: such collectives do not count.
        timestamp: takes a timestamp of an asynchronous device; None where the host itself waits.
    """

    __slots__ = (
        "_cause",
        "_iteration_began",
        "_ns",
        "_pairs",
        "_settled",
        "_thread",
        "_timestamp",
        "on_wait",
        "since",
    )

    def __init__(
        self, iteration_began: Callable[[], Optional[int]], timestamp: Callable[[], Any]
    ) -> None:
        self._iteration_began = iteration_began
        self._timestamp = timestamp
        self._ns = 0
        self._pairs: List[Tuple[Any, Any]] = []
        # The latest reduction's cause, and what belongs to its step.
        self._cause: Optional[int] = None
        self._settled = (0, 0)
        # A thread that saves a checkpoint waits beside training.
        self._thread = threading.get_ident()
        #: Receives begin, end and iteration of each collective, instead of counting it.
        self.on_wait: Optional[Callable[[int, int, int], None]] = None
        #: Since when the current collective has waited; None outside of collectives.
        self.since: Optional[int] = None

    @property
    def iteration(self) -> Optional[int]:
        """Return when the running iteration began, once its batch is there."""
        return self._iteration_began()

    def timed(self, collective: Function) -> Function:
        """Return the function with its time counted, unless it runs inside of another one."""

        @functools.wraps(collective)
        def waits(*args: Any, **kwargs: Any) -> Any:
            if self.since is not None or threading.get_ident() != self._thread:
                return collective(*args, **kwargs)
            before = self._timestamp()
            self.since = began = monotonic_ns()
            try:
                return collective(*args, **kwargs)
            finally:
                self.add(began, before)

        return waits

    def add(self, began: int, device_began: Any = None) -> None:
        """Count a collective that ends now."""
        ended, self.since = monotonic_ns(), None
        iteration = self._iteration_began()
        if iteration is None:
            return
        if self.on_wait is not None:
            self.on_wait(began, ended, iteration)
        else:
            device_ended = None if device_began is None else self._timestamp()
            if device_ended is None:
                self._ns += ended - began
            elif len(self._pairs) < _MOST_PAIRS:
                self._pairs.append((device_began, device_ended))

    def before(self, cause: Optional[int]) -> Tuple[int, Pairs]:
        """Return the waits before a reduction: nanoseconds, and collectives on a device.

        A reduction with the ``cause`` of the previous one belongs to the same step.
        """
        if cause is None or cause != self._cause:
            ns, pairs = self._settled
            self._ns -= ns
            del self._pairs[:pairs]
            self._cause = cause
        self._settled = self._ns, len(self._pairs)
        return self._ns, tuple(self._pairs)

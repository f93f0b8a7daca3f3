"""Count the time that a rank spends in collectives before its gradients are ready.

In a collective a rank waits for the slowest one: then all ranks' gradients are ready at the same time,
and all look equally slow. Each rank's own work is the rest: see ``loops.steps.Reduction.waited``.
"""

from __future__ import annotations

import functools
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
        counts: returns whether an iteration of the training loop runs: only its collectives count.
        timestamp: takes a timestamp of an asynchronous device; None where the host itself waits.
    """

    __slots__ = ("_cause", "_counts", "_ns", "_pairs", "_settled", "_timestamp", "since")

    def __init__(self, counts: Callable[[], bool], timestamp: Callable[[], Any]) -> None:
        self._counts = counts
        self._timestamp = timestamp
        self._ns = 0
        self._pairs: List[Tuple[Any, Any]] = []
        # The latest reduction's cause, and what belongs to its step.
        self._cause: Optional[int] = None
        self._settled = (0, 0)
        #: Since when the current collective has waited; None outside of collectives.
        self.since: Optional[int] = None

    def timed(self, collective: Function) -> Function:
        """Return the function with its time counted."""

        @functools.wraps(collective)
        def waits(*args: Any, **kwargs: Any) -> Any:
            before = self._timestamp()
            self.since = began = monotonic_ns()
            try:
                return collective(*args, **kwargs)
            finally:
                self.add(began, before)

        return waits

    def add(self, began: int, device_began: Any = None) -> int:
        """Count a collective that ends now; return the current time."""
        ended, self.since = monotonic_ns(), None
        if self._counts():
            device_ended = None if device_began is None else self._timestamp()
            if device_ended is None:
                self._ns += ended - began
            elif len(self._pairs) < _MOST_PAIRS:
                self._pairs.append((device_began, device_ended))
        return ended

    def before(self, cause: Optional[int]) -> Tuple[int, Pairs]:
        """Return the waits before a reduction: nanoseconds, and collectives on a device.

        A reduction with the ``cause`` of the previous one belongs to the same step.
        """
        if cause is None or cause != self._cause:
            ns, pairs = self._settled
            self._ns -= ns
            del self._pairs[:pairs]
            self._cause = cause
        self.settle()
        return self._ns, tuple(self._pairs)

    def settle(self) -> None:
        """Assign all waits so far to the latest reduction's step."""
        self._settled = self._ns, len(self._pairs)

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
        iteration_began: returns when the running iteration of the training loop began; None between
            iterations, whose collectives do not count.
        timestamp: takes a timestamp of an asynchronous device; None where the host itself waits.
    """

    __slots__ = (
        "_cause",
        "_earlier",
        "_iteration",
        "_iteration_began",
        "_ns",
        "_pairs",
        "_reduced_in",
        "_settled",
        "_timestamp",
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
        # The iterations of the latest collective and of the latest reduction, and the waits before the
        # former.
        self._iteration: Optional[int] = None
        self._reduced_in: Optional[int] = None
        self._earlier = (0, 0)
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
        iteration = self._iteration_began()
        if iteration is not None:
            if iteration != self._iteration:
                self._iteration, self._earlier = iteration, (self._ns, len(self._pairs))
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
            self._earlier = max(0, self._earlier[0] - ns), max(0, self._earlier[1] - pairs)
            self._cause = cause
        self._reduced_in = self._iteration_began()
        self.settle()
        return self._ns, tuple(self._pairs)

    def settle(self) -> None:
        """Assign all waits so far to the latest reduction's step."""
        self._settled = self._ns, len(self._pairs)

    def settle_earlier(self) -> None:
        """Assign the waits of earlier iterations to the latest reduction's step.

        If that reduction is of the running iteration, all waits so far.
        """
        iteration = self._iteration_began()
        if iteration == self._iteration != self._reduced_in:
            self._settled = self._earlier
        else:
            self.settle()

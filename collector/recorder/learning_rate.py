"""Learning rates: whether one was scaled by the number of ranks, and how it goes on."""

from __future__ import annotations

import inspect
from typing import Any, List, Optional, Tuple

# A schedule may change the rate in every epoch: the last of them are kept.
_MOST_CHANGES = 16


class Rates:
    """The rate with which each epoch begins, told when it has changed."""

    def __init__(self) -> None:
        self._changes: List[Tuple[int, float]] = []

    def changed(self, epoch: int, rate: Optional[float]) -> Optional[List[Tuple[int, float]]]:
        """The last changes, by epoch, where this epoch's rate is one; None where it is not."""
        if rate is None or (self._changes and self._changes[-1][1] == rate):
            return None
        self._changes = [*self._changes[1 - _MOST_CHANGES :], (epoch, rate)]
        return self._changes


def scaled_by_ranks(
    optimizer: Any, argument: str, rate: Optional[float], size: int
) -> Optional[bool]:
    """Whether the rate is the optimizer's default times the number of ranks.

    None where nothing can be said: any other rate may be a tuned one.

    Args:
        argument: what the optimizer's class calls the rate.
    """
    default = _default_rate(type(optimizer), argument)
    if rate is None or size < 2 or default is None:
        return None
    for expected, scaled in ((default * size, True), (default, False)):
        if abs(rate - expected) <= 1e-6 * expected:
            return scaled
    return None


def _default_rate(optimizer: type, argument: str) -> Optional[float]:
    """The default of the class that first has one: Horovod's subclass has other arguments."""
    for base in optimizer.__mro__:
        own = vars(base).get("__init__")
        parameter = inspect.signature(own).parameters.get(argument) if own else None
        if parameter is not None:
            return parameter.default if isinstance(parameter.default, float) else None
    return None

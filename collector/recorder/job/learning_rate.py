"""Find out whether learning rates are scaled by the number of ranks, and how they change."""

from __future__ import annotations

import inspect
from typing import Any, Dict, List, Optional, Tuple

from .facts import known

# A schedule may change the rate in every epoch: keep the latest changes.
_MOST_CHANGES = 16


class LearningRates:
    """The learning rate at the start of each epoch, reported when it has changed."""

    def __init__(self) -> None:
        self._changes: List[Tuple[int, float]] = []

    def changed(self, epoch: int, rate: Optional[float]) -> Optional[List[Tuple[int, float]]]:
        """Return the latest changes by epoch if the rate changed in this epoch; otherwise None."""
        if rate is None or (self._changes and self._changes[-1][1] == rate):
            return None
        self._changes = [*self._changes[1 - _MOST_CHANGES :], (epoch, rate)]
        return self._changes


def optimizer_facts(
    optimizer: Any, argument: str, rate: Optional[float], size: int
) -> Dict[str, Any]:
    """Return the optimizer's kind and its learning rate; see ``scaled_by_ranks``."""
    return {
        "optimizer": None if optimizer is None else type(optimizer).__name__,
        "learning_rate": rate,
        "learning_rate_scaled": known(lambda: scaled_by_ranks(optimizer, argument, rate, size)),
    }


def scaled_by_ranks(
    optimizer: Any, argument: str, rate: Optional[float], size: int
) -> Optional[bool]:
    """Return whether the rate is the optimizer's default times the number of ranks.

    None where that is unknown: any other rate may have been tuned.

    Args:
        argument: the name of the rate in the optimizer's constructor.
    """
    default = _default_rate(type(optimizer), argument)
    if rate is None or size < 2 or default is None:
        return None
    for expected, scaled in ((default * size, True), (default, False)):
        if abs(rate - expected) <= 1e-6 * expected:
            return scaled
    return None


def _default_rate(optimizer: type, argument: str) -> Optional[float]:
    """Find the default in the first class that has one: Horovod's subclass has other arguments."""
    for base in optimizer.__mro__:
        constructor = vars(base).get("__init__")
        parameter = inspect.signature(constructor).parameters.get(argument) if constructor else None
        if parameter is not None:
            return parameter.default if isinstance(parameter.default, float) else None
    return None

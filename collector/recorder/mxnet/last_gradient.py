"""Find the gradient that finishes last: asking MXNet's engine for that one is enough."""

from __future__ import annotations

from typing import List, Sequence

# The number of groups per question.
_GROUPS = 10
# The time within which the engine reports gradients that are ready already.
_AT_ONCE_NS = 100_000
# Steps until a result is checked again: a new result, and one that was confirmed.
_SOON, _LATER = 16, 256


class LastGradient:
    """Finds the last gradient by asking for groups, then for smaller groups of the latest group.

    Args:
        names: the names of all gradients, at least one.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names = list(names)
        self._among = self._names
        #: Steps for which ``guess`` is taken as the last gradient, before asking for groups.
        self.patience = 0

    @property
    def guess(self) -> str:
        return self._among[0]

    @property
    def is_found(self) -> bool:
        return len(self._among) == 1

    @property
    def groups(self) -> List[List[str]]:
        """The groups to ask for, each separately. Together they contain all gradients."""
        among = self._among
        size = -(-len(among) // _GROUPS)
        groups = [among[first : first + size] for first in range(0, len(among), size)]
        left = set(among)
        others = [name for name in self._names if name not in left]
        return [*groups, others] if others else groups

    def learn(self, times: List[int], asked_until: int) -> None:
        """Learn when the ``groups`` were ready, in nanoseconds; the questions ended at asked_until."""
        if max(times) <= asked_until + _AT_ONCE_NS:
            # All were ready already: their order is only the order of the questions.
            self.patience = _SOON
            return
        count = len(times) - (len(self._among) < len(self._names))
        among, others = max(times[:count]), times[count:]
        if others and others[0] > among + _AT_ONCE_NS:
            self._among = self._names
            self.patience = 0
        elif self.is_found:
            self.patience = _LATER
        else:
            self._among = self.groups[times.index(among)]
            self.patience = _SOON if self.is_found else 0

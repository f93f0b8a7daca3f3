"""Which gradient is there last: to ask MXNet's engine for that one alone tells of all."""

from __future__ import annotations

from typing import List, Sequence

# So many groups at a time.
_GROUPS = 10
# So long the engine may take to tell what is there.
_AT_ONCE_NS = 100_000
# So many steps later it is looked at again what has been found just now, and what has held once more.
_SOON, _LATER = 16, 256


class LastGradient:
    """Found by asking for groups, and in the later one of them for smaller ones.

    Args:
        names: of all gradients, at least one.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names = list(names)
        self._among = self._names
        #: So many steps it may be taken that ``guess`` is the last, before groups are asked for.
        self.patience = 0

    @property
    def guess(self) -> str:
        return self._among[0]

    @property
    def found(self) -> bool:
        return len(self._among) == 1

    @property
    def groups(self) -> List[List[str]]:
        """What to ask for, each group by itself. Together they have all gradients."""
        among = self._among
        size = -(-len(among) // _GROUPS)
        groups = [among[first : first + size] for first in range(0, len(among), size)]
        left = set(among)
        others = [name for name in self._names if name not in left]
        return [*groups, others] if others else groups

    def learn(self, times: List[int], asked_until: int) -> None:
        """The ``groups`` were there at these times, in nanoseconds, and asked for until then."""
        if max(times) <= asked_until + _AT_ONCE_NS:
            # All were there already: that one was later than another one was only asked for later.
            self.patience = _SOON
            return
        count = len(times) - (len(self._among) < len(self._names))
        among, others = max(times[:count]), times[count:]
        if others and others[0] > among + _AT_ONCE_NS:
            self._among = self._names
            self.patience = 0
        elif self.found:
            self.patience = _LATER
        else:
            self._among = self.groups[times.index(among)]
            self.patience = _SOON if self.found else 0

"""Time when gradients are ready and when they are reduced, without making training wait.

MXNet's engine is asynchronous. Before the reduction it is asked when the last gradient is ready, after
the reduction when all are reduced. A question for several gradients would delay their reduction until
all of them are ready. So the question before the reduction is for a single gradient, except in the few
steps that find out which one comes last.
"""

from __future__ import annotations

import threading
from time import monotonic_ns
from typing import Any, Dict, Iterable, List, Optional, Union

from .gluon_iterations import LastGradient
from .mxnet_engine import Handles, Moment, asker, handles_of

# Steps between two readings of the list of gradients, which take longer than everything else.
_LOOKED_AT = 64
# Steps to the next reading if an answer is expected soon.
_SOON = 4
# Steps that the host may be ahead of the engine's answer before it stops asking for groups.
_MOST_UNANSWERED = 64
# An operator writes these gradients together, so one of them stands for both; of their reductions, the
# one that is requested last does. Every array in a question costs the engine a quarter of a microsecond.
_WRITTEN_WITH = {"bias": "weight", "beta": "gamma"}


class Groups:
    """The moments of groups of gradients that were asked for one by one; the latest counts."""

    def __init__(self, moments: List[Moment]) -> None:
        #: When the last question was asked.
        self.asked_until = monotonic_ns()
        self._moments = moments
        self._times: List[int] = []
        # The training thread reads the times, and the thread that makes rows does too.
        self._takes = threading.Lock()

    @property
    def is_there(self) -> bool:
        return bool(self._times) or all(moment.is_there for moment in self._moments)

    def times(self) -> List[int]:
        """Return monotonic nanoseconds, group by group, once they are there."""
        with self._takes:
            if not self._times:
                self._times = [moment.take() for moment in self._moments]
        return self._times

    def take(self) -> int:
        """Return the latest time, like a Moment's."""
        return max(self.times())


Answer = Union[Moment, Groups]


class GradientProbe:
    """Asks the engine when it has finished all gradients of a trainer.

    Raises:
        OSError: if the engine cannot be asked.
    """

    # Slots, not a dict: training has just evicted everything from the CPU's caches.
    __slots__ = (
        "_ask",
        "_asked",
        "_last",
        "_left",
        "_parameters",
        "_reduced",
        "_representatives",
        "_search",
        "_stretch",
        "_unanswered",
    )

    def __init__(self, trainer: Any) -> None:
        self._parameters = trainer._params
        self._ask = asker()
        # Parameters that stand for all gradients, and handles that stand for all reductions.
        self._representatives: Dict[str, Any] = {}
        self._reduced: Handles = _handles(())
        # The search for the last gradient, the handles of that gradient, and the question in the search.
        self._search: Optional[LastGradient] = None
        self._last = self._reduced
        self._asked: Optional[Groups] = None
        # Steps since the last question for groups without an answer.
        self._unanswered = 0
        # Questions for the last gradient before the next look at the list: left, and at the start.
        self._left = self._stretch = 0

    def look_again(self) -> None:
        """Read the list of gradients again: layers may be frozen or unfrozen between epochs."""
        self._stretch -= max(self._left, 0)
        self._left = 0

    def ask_ready(self) -> Optional[Answer]:
        """Ask when all gradients requested so far are ready; None if that is unknown."""
        self._left = left = self._left - 1
        return self._ask(self._last) if left >= 0 else self._look_and_ask()

    def ask_reduced(self) -> Moment:
        """Ask when all are reduced; the reductions must have been requested before."""
        return self._ask(self._reduced)

    def _look_and_ask(self) -> Optional[Answer]:
        self._look()
        search = self._search
        if search is None:
            return self.ask_reduced()
        if self._asked is None:
            search.patience -= self._stretch
        elif self._asked.is_there:
            search.learn(self._asked.times(), self._asked.asked_until)
            self._asked = None
        # The host may be ahead of the engine and of its answer.
        if search.patience > 0 or (self._asked is not None and search.is_found):
            self._stretch = min(max(search.patience, _SOON), _LOOKED_AT)
            self._left = self._stretch - 1
            self._last = self._handles_of([search.guess])
            return self._ask(self._last)
        self._left = self._stretch = 0
        self._unanswered = 0 if self._asked is None else self._unanswered + 1
        if self._unanswered > _MOST_UNANSWERED:
            return None
        answer = Groups([self._ask(self._handles_of(group)) for group in search.groups])
        if self._asked is None:
            self._asked = answer
        return answer

    def _look(self) -> None:
        """Read the list of gradients."""
        trained = {
            parameter.name: parameter
            for parameter in self._parameters
            if parameter.grad_req != "null"
        }
        representatives, reduced = {}, {}
        for name, parameter in trained.items():
            partner = _written_with(name)
            if partner not in trained:
                representatives[name] = parameter
            # The later of the two, in the order in which the trainer reduces them.
            reduced[partner if partner in trained else name] = parameter
        if list(representatives) != list(self._representatives):
            self._search = LastGradient(list(representatives)) if representatives else None
            self._asked = None
        self._representatives, self._reduced = representatives, _handles(reduced.values())

    def _handles_of(self, names: Iterable[str]) -> Handles:
        return _handles([self._representatives[name] for name in names])


def _handles(parameters: Iterable[Any]) -> Handles:
    return handles_of([gradient for parameter in parameters for gradient in parameter.list_grad()])


def _written_with(name: str) -> Optional[str]:
    """Return the parameter with a gradient that the same operator writes; None without one."""
    layer, _, kind = name.rpartition("_")
    partner = _WRITTEN_WITH.get(kind)
    return None if partner is None else "%s_%s" % (layer, partner)

"""When gradients are there, and when they are reduced, without waiting for them in the training.

MXNet's engine runs asynchronously. Before the reduction it is asked when the last gradient
is there, after it, when all are reduced. A gradient that is asked for together with others is reduced
when they are there: so before it one question is for one gradient, but for the few steps in which
it is looked which one comes last.
"""

from __future__ import annotations

import threading
from time import monotonic_ns
from typing import Any, Dict, Iterable, List, Optional, Union

from .engine import Handles, Moment, asker, handles_of
from .last_gradient import LastGradient

# To look which gradients there are takes longer than all the rest.
_LOOKED_AT = 64
# How soon, where an answer is to be waited for.
_SOON = 4
# So many steps the host may be ahead of the engine's answer, before it is not asked for groups again.
_MOST_UNANSWERED = 64
# The operators of layers write these gradients together, so one of them tells of both, and of their
# reductions the one that is asked for last. Every array that the engine has to look at costs a quarter
# of a microsecond.
_WRITTEN_WITH = {"bias": "weight", "beta": "gamma"}


class Groups:
    """The moments of groups of gradients that were asked for one by one, of which the latest counts."""

    def __init__(self, moments: List[Moment]) -> None:
        #: When the last one was asked for.
        self.asked_until = monotonic_ns()
        self._moments = moments
        self._times: List[int] = []
        # The training looks at the times, and the thread that makes rows.
        self._takes = threading.Lock()

    @property
    def is_there(self) -> bool:
        return bool(self._times) or all(moment.is_there for moment in self._moments)

    def times(self) -> List[int]:
        """In monotonic nanoseconds, group by group; they have to be there."""
        with self._takes:
            if not self._times:
                self._times = [moment.take() for moment in self._moments]
        return self._times

    def take(self) -> int:
        """As a Moment's."""
        return max(self.times())


Answer = Union[Moment, Groups]


class GradientProbe:
    """Tells when the engine is through with all gradients of a trainer.

    Raises:
        OSError: where the engine cannot be asked.
    """

    # Not a dict: in every step the training has just driven it out of the processor's caches.
    __slots__ = (
        "_ask",
        "_asked",
        "_last",
        "_left",
        "_parameters",
        "_reduced",
        "_search",
        "_stretch",
        "_told",
        "_unanswered",
    )

    def __init__(self, trainer: Any) -> None:
        self._parameters = trainer._params
        self._ask = asker()
        # Parameters whose gradients tell of all, and what the engine needs to tell of all reductions.
        self._told: Dict[str, Any] = {}
        self._reduced: Handles = _handles(())
        # Which gradient comes last, what the engine needs to tell of it, and what was asked to find out.
        self._search: Optional[LastGradient] = None
        self._last = self._reduced
        self._asked: Optional[Groups] = None
        # So many steps the engine has been asked for groups since, and has not answered.
        self._unanswered = 0
        # So often the last one is asked for before there is something to look at: now, and last time.
        self._left = self._stretch = 0

    def look_again(self) -> None:
        """Layers get frozen between epochs, and others get unfrozen."""
        self._stretch -= max(self._left, 0)
        self._left = 0

    def ask_ready(self) -> Optional[Answer]:
        """When all gradients are as requested up to here; None if it is not known."""
        self._left = left = self._left - 1
        return self._ask(self._last) if left >= 0 else self._look_and_ask()

    def ask_reduced(self) -> Moment:
        """When all are as it was told up to here, the last of which was to reduce each of them."""
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
        # The host may be ahead of the engine, and of its answer.
        if search.patience > 0 or (self._asked is not None and search.found):
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
        """Which gradients there are."""
        trained = {one.name: one for one in self._parameters if one.grad_req != "null"}
        told, reduced = {}, {}
        for name, one in trained.items():
            other = _told_by(name)
            if other not in trained:
                told[name] = one
            # The later one, in the order in which the trainer has them reduced.
            reduced[other if other in trained else name] = one
        if list(told) != list(self._told):
            self._search, self._asked = LastGradient(list(told)) if told else None, None
        self._told, self._reduced = told, _handles(reduced.values())

    def _handles_of(self, names: Iterable[str]) -> Handles:
        return _handles([self._told[name] for name in names])


def _handles(parameters: Iterable[Any]) -> Handles:
    return handles_of([gradient for one in parameters for gradient in one.list_grad()])


def _told_by(name: str) -> Optional[str]:
    """The parameter whose gradient the same operator writes; None where there is none."""
    layer, _, kind = name.rpartition("_")
    other = _WRITTEN_WITH.get(kind)
    return None if other is None else "%s_%s" % (layer, other)

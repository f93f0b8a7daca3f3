"""What the recorder asks of every backend: when the batch was there, and when the gradients were."""

from __future__ import annotations

import threading
from typing import Any, Callable, List, Optional, Tuple

from ..format import StepRow
from ..guards import let_others_run
from ..tf_keras.calls import MOST_WAITING, EndedCalls
from ..tf_keras.steps import Call
from ..tf_keras.timing import TimedFunction
from .batches import BatchClock
from .steps import Steps

# Making rows takes milliseconds; a process that was forked meanwhile does not wait for it.
_PATIENCE_SECONDS = 2.0

Emit = Callable[[List[StepRow]], None]

#: What is said where forward, backward and update are one function, and only its end is seen.
WHOLE_STEP = "end of the whole step, which updates the weights as well"


class Stages:
    """Stages of one ``fit``. What a backend cannot timestamp is missing in its rows.

    Nothing here is called by anybody but the recording, which catches whatever fails.
    """

    #: Timestamps that are in the rows, in order.
    placed: Tuple[str, ...] = ()
    #: Why some or all of them are not; None where all are.
    reason: Optional[str] = None
    #: What *ready* means where it is not the last gradient.
    ready: Optional[str] = None
    #: Whether ``call_ended`` wants to be called after every call from here on, not just at times.
    attentive = True
    #: What stands in the place of the model's train function, once that is timed.
    timer: Optional[TimedFunction] = None
    #: How a call tells more than its times, in one of these ways (see ``timed``).
    saw: Optional[Callable[[Any], Any]] = None
    key: Optional[str] = None
    last_of: Any = None

    def install(self, epoch_iterator: Any) -> None:
        """Put into the model what takes the timestamps."""

    def remove(self) -> None:
        """Take it out again."""

    def function(self, made: Callable[..., Any]) -> Callable[..., Any]:
        """The train function whose calls are timed."""
        return made

    def call_ended(self) -> None:
        """The train function was called: the first time, at times, and while attentive."""
        self.attentive = False

    def call_aborted(self, begin: int) -> None:
        """It raised, mostly because the data ended."""

    def drain(self) -> None:
        """Emit the rows of calls that have ended; from the flushing thread as well."""

    def settle(self) -> None:
        """Emit the rows of all calls that have ended; between calls only."""


class FetchedInPython(Stages):
    """Of the backends whose batches come through a Python iterator."""

    def __init__(self, calls: EndedCalls, model: Any, steps: Steps, emit: Emit) -> None:
        self.calls = calls
        self.batches = BatchClock(int(model.steps_per_execution))
        self._steps = steps
        self._emit = emit
        self._takes = threading.Lock()

    def install(self, epoch_iterator: Any) -> None:
        if epoch_iterator is None:
            self.placed, self.reason = (), "this Keras fetches batches where nobody can see it"
        else:
            self.batches.install(epoch_iterator)

    def remove(self) -> None:
        self.batches.remove()

    def call_ended(self) -> None:
        super().call_ended()
        if len(self.calls) >= MOST_WAITING:
            self.drain()

    def call_aborted(self, begin: int) -> None:
        self.batches.forget()

    def drain(self) -> None:
        if not self._takes.acquire(timeout=_PATIENCE_SECONDS):
            return
        try:
            # Another call may end meanwhile, of which not all is there yet.
            for count, call in enumerate(self.calls.take(self._known()), 1):
                turn = self._turn(call)
                if call.own_ns is not None:
                    self.calls.count(call.own_ns + self.batches.own_ns())
                self._emit(self._steps.rows(turn))
                let_others_run(count)
        finally:
            self._takes.release()

    def settle(self) -> None:
        self.drain()

    def _known(self) -> int:
        """Of how many of the calls that wait everything is there."""
        raise NotImplementedError

    def _turn(self, call: Call) -> StepRow:
        """The first of them."""
        raise NotImplementedError

"""The interface of every backend: when the batch arrived, and when the gradients were ready."""

from __future__ import annotations

import threading
from typing import Any, Callable, List, NamedTuple, Optional, Tuple

from ..guards import yield_to_training
from ..hangs.in_flight import Position
from ..keras_common.calls import MOST_WAITING, FinishedCalls
from ..keras_common.steps import Call
from ..loops.iterations import IterationSummer
from ..step_log.format import StepRow
from .batches import BatchClock, samples_of, wait_of

# Making rows takes milliseconds; a process forked meanwhile must not wait for it.
_PATIENCE_SECONDS = 2.0


class KerasFit(NamedTuple):
    """A fit, and how it is recorded."""

    calls: FinishedCalls
    model: Any
    #: Whether timestamps are wanted.
    wanted: bool
    #: Whether one process trains.
    single: bool
    #: The first step, the passes per step, and the passes that the optimizer had counted before.
    counted: Tuple[int, int, int]
    #: Receives the rows.
    emit: Callable[[List[StepRow]], None]


class Stages:
    """Stages of one ``fit``. Rows lack what a backend cannot timestamp.

    Only the recording calls these methods, and it catches their errors.
    """

    #: Timestamps in the rows, in order.
    placed: Tuple[str, ...] = ()
    #: Why some or all timestamps are missing; None where all are there.
    reason: Optional[str] = None
    #: The meaning of *ready* where it is not the last gradient.
    ready: Optional[str] = None
    #: Whether ``check`` must run after every call from here on, not just now and then.
    attentive = True
    #: The source of further information about a call (see ``timed``).
    saw: Optional[Callable[[Any], Any]] = None
    key: Optional[str] = None
    last_of: Any = None

    def install(self, epoch_iterator: Any) -> None:
        """Patch the model to take the timestamps."""

    def remove(self) -> None:
        """Unpatch the model."""

    def function(
        self, train_function: Callable[..., Any], is_timed: Callable[[], bool]
    ) -> Callable[..., Any]:
        """Return the train function to time; ``is_timed`` returns whether a timed call runs."""
        return train_function

    def check(self) -> None:
        """Check the training after the first call, then now and then, or after each if attentive."""
        self.attentive = False

    def abort(self, begin: int) -> None:
        """Handle a call that raised, usually at the end of the data."""

    def position(self, begin: int) -> Position:
        """Return the progress of the step whose call started at ``begin``; for the flushing thread."""
        return Position(begin)

    def drain(self) -> None:
        """Emit the rows of finished calls; the flushing thread calls it too."""

    def settle(self) -> None:
        """Emit the rows of all finished calls; only called between calls."""


class FetchedInPython(Stages):
    """Stages of the backends whose batches come through a Python iterator."""

    def __init__(self, fit: KerasFit) -> None:
        self.calls = fit.calls
        self._steps_per_call = int(fit.model.steps_per_execution)
        self.batches = BatchClock(self._steps_per_call)
        self._steps = IterationSummer(*fit.counted)
        self._emit = fit.emit
        self._takes = threading.Lock()

    def install(self, epoch_iterator: Any) -> None:
        if epoch_iterator is None:
            self.placed, self.reason = (), "this version of Keras hides how it fetches batches"
        else:
            self.batches.install(epoch_iterator)

    def remove(self) -> None:
        self.batches.remove()

    def position(self, begin: int) -> Position:
        # Keras fetches the batch before it calls the train function.
        return Position(begin, begin)

    def check(self) -> None:
        super().check()
        if len(self.calls) >= MOST_WAITING:
            self.drain()

    def abort(self, begin: int) -> None:
        self.batches.forget()

    def drain(self) -> None:
        if not self._takes.acquire(timeout=_PATIENCE_SECONDS):
            return
        try:
            # Another call may end meanwhile and be incomplete.
            for count, call in enumerate(self.calls.take(self._known()), 1):
                iteration = self._iteration(call)
                if call.own_ns is not None:
                    self.calls.count(call.own_ns + self.batches.own_ns())
                self._emit(self._steps.rows(iteration))
                yield_to_training(count)
        finally:
            self._takes.release()

    def settle(self) -> None:
        self.drain()

    def _known(self) -> int:
        """Return how many of the waiting calls are complete."""
        return len(self.calls)

    def _iteration(self, call: Call) -> StepRow:
        """Make the iteration of the first complete call, as far as the host sees it."""
        assert call.end is not None
        fetches = self.batches.take(call.end)
        begin, data = wait_of(call, fetches)
        return StepRow(
            0,
            call.epoch,
            begin,
            data if "data" in self.placed else None,
            None,
            None,
            call.end,
            max(1, len(fetches)) if self._steps_per_call != 1 else 1,
            samples_of(fetches),
            call.clock_begin,
        )

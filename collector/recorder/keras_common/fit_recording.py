"""Record one ``fit`` of one Keras model: what the recorders of all Keras versions share."""

from __future__ import annotations

import logging
import threading
from types import FrameType
from typing import TYPE_CHECKING, Any, Callable, List, Optional

from ..clock import read_clocks
from ..format import CHECKPOINT, EPOCH, VALIDATION
from ..guards import never_raises
from ..in_flight import Position, running_frame
from ..options import Options
from ..session import Session

if TYPE_CHECKING:
    from .calls import FinishedCalls

logger = logging.getLogger("stallscope")

# Recordings that still run. An exception ends fit without calling the callbacks.
_open: List["FitRecording"] = []


def recording_of(model: Any) -> Optional["FitRecording"]:
    """Return the recording that is still patched into the model; None where there is none."""
    return next((recording for recording in _open if recording.model is model), None)


def stop_abandoned() -> None:
    """Stop recordings whose fit an exception has ended: they would keep their models alive."""
    for recording in list(_open):
        if recording.abandoned:
            recording.stop()


class FitRecording:
    """Patch a model for one ``fit`` and write the steps to the log.

    None of its methods raises: a failure ends the recording with one warning.

    Args:
        model: the model that trains.
        options: the arguments of StepLogger.
        fit: the frame of the ``fit`` that starts; None where this thread runs none.
    """

    def __init__(self, model: Any, options: Options, fit: Optional[FrameType]) -> None:
        self.model = model
        #: The current epoch.
        self.epoch: Optional[int] = None
        self._options = options
        self._optimizer = getattr(model, "optimizer", None)
        # Keras makes a new history for every fit, so the history identifies the fit.
        self._history = getattr(model, "history", None)
        self._thread = None if fit is None else threading.get_ident()
        self._active = self._failed = False
        self._batch_size = options.batch_size
        self._recorded_facts: Any = None
        self._undo: List[Callable[[], None]] = []
        self._session: Optional[Session] = None
        self._calls: "Optional[FinishedCalls]" = None
        # Replaces the model's train function.
        self._timer: Any = None

    @property
    def running(self) -> bool:
        """Return whether calls are recorded."""
        return self._active and self._session is not None and self._session.recording

    @property
    def is_of_this_fit(self) -> bool:
        """Return whether the recording was made for the fit that is just starting."""
        fresh = self._calls is None or self._calls.checks == 0
        return fresh and self._history is getattr(self.model, "history", None)

    @property
    def in_place(self) -> bool:
        """Return whether the model still trains with the function that the recording put there."""
        return getattr(self.model, "train_function", None) is self._timer

    @property
    def abandoned(self) -> bool:
        """Return whether its fit started on this thread and no longer runs on it."""
        return self._thread == threading.get_ident() and self._running_fit() is None

    # -- what each version of Keras does differently ----------------------------------------------

    def start(self) -> None:
        """Open the log, then put timestamps and timers into the model."""
        raise NotImplementedError

    def stop(self) -> None:
        """Restore the model, write what is left and close the log."""
        raise NotImplementedError

    def before_call(self) -> None:
        """Look at the training before a call of the train function."""
        raise NotImplementedError

    def after_call(self) -> None:
        """Look at the training after a call, which now waits to become a row."""
        raise NotImplementedError

    def call_aborted(self, begin: int) -> None:
        """Handle a call that began then and ended with an exception."""
        raise NotImplementedError

    def _running_fit(self) -> Optional[FrameType]:
        """Return the frame of the model's ``fit`` on this thread; None where there is none."""
        raise NotImplementedError

    def _make_rows(self) -> None:
        """Make rows of all calls that have finished; only called between calls."""
        raise NotImplementedError

    def _update_facts(self) -> None:
        """Record facts that are known only after the first step."""
        raise NotImplementedError

    def _counted(self) -> Optional[int]:
        """Return the steps that the optimizer has counted; None where that is unknown."""
        raise NotImplementedError

    def _position_in_call(self, begin: int) -> Position:
        """Return how far the step has come whose call began then."""
        return Position(begin)

    def position(self) -> Position:
        """Return how far the step in flight has come; called on the flushing thread.

        The stack of the training thread shows its call of the train function.
        """
        call = running_frame(self._thread, type(self._timer).__call__.__code__)
        if call is None:
            return self._position_between_calls()
        times = call.f_locals
        if "end" in times:
            return Position()
        return self._position_in_call(times.get("begin") or times["entered"])

    def _position_between_calls(self) -> Position:
        return Position()

    # -- start and stop ----------------------------------------------------------------------------

    def fail(self, error: Exception) -> None:
        """Stop recording and warn once; the model is restored when training ends."""
        self._active = False
        if self._calls is not None:
            self._calls.schedule_check(every_call=True)
        if self._session is not None:
            self._session.fail("recording failed: %r" % error)
        elif not self._failed:
            logger.warning("stallscope: recording could not start, training goes on: %r", error)
        self._failed = True

    def _register(self) -> None:
        _open.append(self)
        self._active = True

    def _unregister(self) -> None:
        if self in _open:
            _open.remove(self)

    def _undo_all(self) -> None:
        while self._undo:
            self._undo_one(self._undo.pop())

    @never_raises
    def _undo_one(self, undo: Callable[[], None]) -> None:
        undo()

    @never_raises
    def _finish(self) -> None:
        if self.running:
            self._make_rows()
            self._update_facts()
            assert self._calls is not None
            self._calls.close()

    @never_raises
    def _close(self) -> None:
        if self._session is not None:
            self._session.close(self._counted())

    # -- events between steps ----------------------------------------------------------------------

    @never_raises
    def begin_epoch(self, epoch: int) -> None:
        self.epoch = epoch
        if self._calls is not None:
            self._calls.change(epoch)
        self._epoch_start = read_clocks()[0]

    @never_raises
    def end_epoch(self) -> None:
        self._interval(EPOCH, self._epoch_start, read_clocks()[0])

    @never_raises
    def begin_validation(self) -> None:
        self._validation_start = read_clocks()[0]
        if self._session is not None:
            self._session.pause(VALIDATION)

    @never_raises
    def end_validation(self) -> None:
        self._interval(VALIDATION, self._validation_start, read_clocks()[0])

    @never_raises
    def _begin_checkpoint(self) -> None:
        if self._session is not None:
            self._session.pause(CHECKPOINT)

    @never_raises
    def _record_checkpoint(self, begin: int, end: int) -> None:
        self._interval(CHECKPOINT, begin, end)

    def _interval(self, kind: str, begin: int, end: int) -> None:
        session = self._session
        if self.running and session is not None:
            with session.cost.outside_iterations():
                # Write earlier steps first: the interval row names the next step.
                self._make_rows()
                # Batches of another shape may have caused another trace.
                self._update_facts()
                session.interval(kind, self.epoch, begin, end)

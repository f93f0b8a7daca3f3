"""One ``fit`` of one Keras model, whichever Keras: what all recordings of it do alike."""

from __future__ import annotations

import logging
import threading
from types import FrameType
from typing import TYPE_CHECKING, Any, Callable, List, Optional

from .clock import read_clocks
from .format import CHECKPOINT, EPOCH, VALIDATION
from .guards import never_raises
from .options import Options
from .session import Session

if TYPE_CHECKING:
    from .tf_keras.calls import EndedCalls

logger = logging.getLogger("stallscope")

# Recordings that are still running: an exception ends fit without a word to its callbacks.
_open: List["FitRecording"] = []


def recording_of(model: Any) -> Optional["FitRecording"]:
    """The recording that still has its hands in the model."""
    return next((recording for recording in _open if recording.model is model), None)


def stop_abandoned() -> None:
    """Stop recordings whose fit an exception has ended: they would keep their models for ever."""
    for recording in list(_open):
        if recording.abandoned:
            recording.stop()


class FitRecording:
    """What is put into a model for one ``fit``, and what that sees on its way to the log.

    Whatever fails in here stays in here: none of its methods raises.

    Args:
        model: what trains.
        options: what the user asked for.
        fit: the frame of the ``fit`` that begins; None where this thread is not in one.
    """

    def __init__(self, model: Any, options: Options, fit: Optional[FrameType]) -> None:
        self.model = model
        #: The epoch that runs.
        self.epoch: Optional[int] = None
        self._options = options
        self._optimizer = getattr(model, "optimizer", None)
        # Keras makes a new history for every fit: it tells this fit from another one.
        self._history = getattr(model, "history", None)
        self._thread = None if fit is None else threading.get_ident()
        self._active = self._failed = False
        self._batch_size = options.batch_size
        self._announced: Any = None
        self._undo: List[Callable[[], None]] = []
        self._session: Optional[Session] = None
        self._calls: "Optional[EndedCalls]" = None
        # What is in the place of the model's train function.
        self._timer: Any = None

    @property
    def running(self) -> bool:
        """Whether calls are to be recorded."""
        return self._active and self._session is not None and self._session.recording

    @property
    def is_of_this_fit(self) -> bool:
        """Whether the fit that is just beginning is the one that it was made for."""
        fresh = self._calls is None or self._calls.looked == 0
        return fresh and self._history is getattr(self.model, "history", None)

    @property
    def in_place(self) -> bool:
        """Whether the model still trains with the function that it has put there."""
        return getattr(self.model, "train_function", None) is self._timer

    @property
    def abandoned(self) -> bool:
        """Whether its fit began on this thread, and is on it no more."""
        return self._thread == threading.get_ident() and self._fit_that_runs() is None

    # -- what each Keras does in its own way -------------------------------------------------------

    def start(self) -> None:
        """Open the log, then put timestamps and timers into the model."""
        raise NotImplementedError

    def stop(self) -> None:
        """Leave the model as it was found, write what is left and close the log."""
        raise NotImplementedError

    def before_call(self) -> None:
        """A call of the train function is about to begin."""
        raise NotImplementedError

    def called(self) -> None:
        """A call has ended, and is among those that wait to become rows."""
        raise NotImplementedError

    def aborted(self, begin: int) -> None:
        """A call that began then was ended by an exception."""
        raise NotImplementedError

    def _fit_that_runs(self) -> Optional[FrameType]:
        """The frame of the model's ``fit`` on this thread; None where there is none."""
        raise NotImplementedError

    def _make_rows(self) -> None:
        """Of all calls that have ended; between calls only."""
        raise NotImplementedError

    def _announce_news(self) -> None:
        """Tell the log what is known only once the first step is done."""
        raise NotImplementedError

    def _counted(self) -> Optional[int]:
        """Steps that the optimizer has counted; None where it does not tell."""
        raise NotImplementedError

    # -- begin and end -----------------------------------------------------------------------------

    def fail(self, error: Exception) -> None:
        """Record no more, and say so once; the model is restored when training ends."""
        self._active = False
        if self._calls is not None:
            self._calls.attend(to_all=True)
        if self._session is not None:
            self._session.fail("recording failed: %r" % error)
        elif not self._failed:
            logger.warning("stallscope: recording could not start, training goes on: %r", error)
        self._failed = True

    def _begin(self) -> None:
        _open.append(self)
        self._active = True

    def _forget(self) -> None:
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
            self._announce_news()
            assert self._calls is not None
            self._calls.close()

    @never_raises
    def _close(self) -> None:
        if self._session is not None:
            self._session.close(self._counted())

    # -- what Keras does between steps -------------------------------------------------------------

    @never_raises
    def epoch_begins(self, epoch: int) -> None:
        self.epoch = epoch
        if self._calls is not None:
            self._calls.change(epoch)
        self._epoch_began = read_clocks()[0]

    @never_raises
    def epoch_ends(self) -> None:
        self._interval(EPOCH, self._epoch_began, read_clocks()[0])

    @never_raises
    def validation_begins(self) -> None:
        self._validation_began = read_clocks()[0]

    @never_raises
    def validation_ends(self) -> None:
        self._interval(VALIDATION, self._validation_began, read_clocks()[0])

    @never_raises
    def _saved(self, begin: int, end: int) -> None:
        self._interval(CHECKPOINT, begin, end)

    def _interval(self, kind: str, begin: int, end: int) -> None:
        session = self._session
        if self.running and session is not None:
            with session.cost.besides():
                # The steps before it first: the row says which one comes next.
                self._make_rows()
                # Batches of another shape may have been traced anew.
                self._announce_news()
                session.interval(kind, self.epoch, begin, end)

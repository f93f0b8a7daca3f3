"""One recording: what is put into a model for one ``fit``, and what comes out of it as rows."""

from __future__ import annotations

import logging
import os
import threading
from typing import Any, Callable, List, Optional

import keras

from ..clock import read_clocks
from ..facts import host_facts, settings, timeline_is_on
from ..format import CHECKPOINT, EPOCH, VALIDATION, StepRow
from ..guards import never_raises
from ..identity import World
from ..options import Options
from ..session import Session
from ..tf_keras.calls import EndedCalls
from ..tf_keras.timing import TimedFunction, TimedSaving, timed
from .batches import fit_of
from .facts import model_facts, passes_counted, passes_per_step, plan, weights, world_of_training
from .stages import Stages
from .steps import Steps

logger = logging.getLogger("stallscope")

# Recordings that nobody has stopped yet: an exception ends fit without a word to its callbacks.
_open: List["Recording"] = []


def recording_of(model: Any) -> Optional["Recording"]:
    """The recording that still has its hands in the model."""
    return next((recording for recording in _open if recording.model is model), None)


def stop_abandoned() -> None:
    """Stop recordings whose fit an exception has ended: they would keep their models for ever."""
    for recording in list(_open):
        if recording.abandoned:
            recording.stop()


class Recording:
    """One ``fit`` of one model: its stamps and timers, and what they see on its way to the log.

    Whatever fails in here stays in here: none of its methods raises.
    """

    def __init__(self, model: Any, params: Any, options: Options) -> None:
        self.model = model
        #: The epoch that runs.
        self.epoch: Optional[int] = None
        self._params = params
        self._options = options
        self._optimizer = getattr(model, "optimizer", None)
        # Keras makes a new history for every fit: it tells this fit from another one.
        self._history = getattr(model, "history", None)
        fit = fit_of(model)
        self._thread = None if fit is None else threading.get_ident()
        self._epoch_iterator = None if fit is None else fit.f_locals.get("epoch_iterator")
        self._active = False
        self._failed = False
        self._batch_size = options.batch_size
        self._announced: Any = None
        self._undo: List[Callable[[], None]] = []
        self._calls: Optional[EndedCalls] = None
        self._timer: Optional[TimedFunction] = None
        self._session: Optional[Session] = None
        self._stages: Optional[Stages] = None

    @property
    def running(self) -> bool:
        """Whether calls are to be recorded."""
        return self._active and self._session is not None and self._session.recording

    @property
    def is_of_this_fit(self) -> bool:
        """Whether the fit that is just beginning is the one that it was made for."""
        fresh = self._calls is None or self._calls.seen == 0
        return fresh and self._history is getattr(self.model, "history", None)

    @property
    def in_place(self) -> bool:
        """Whether the model still trains with the function that it has put there."""
        return getattr(self.model, "train_function", None) is self._timer

    @property
    def abandoned(self) -> bool:
        """Whether its fit began on this thread, and is on it no more."""
        return self._thread == threading.get_ident() and fit_of(self.model) is None

    # -- begin and end ---------------------------------------------------------------------------

    @never_raises
    def start(self) -> None:
        """Open the log, then put stamps and timers into the model."""
        world = world_of_training()
        self._single = world.size == 1
        self._passes = passes_per_step(self._optimizer)
        counted = passes_counted(self._optimizer)
        session = self._session = self._open_session(world, counted // self._passes)
        if not session.recording:
            return
        _open.append(self)
        self._active = True
        calls = self._calls = EndedCalls(session.cost)
        calls.epoch = self.epoch
        stages = self._stages_from(calls, session.next_step, counted % self._passes)
        self._stages = stages
        # A fit that has gone on without its recording leaves the epoch iterator behind.
        iterator, self._epoch_iterator = self._epoch_iterator, None
        self._undo.append(stages.remove)
        stages.install(iterator)
        saving = TimedSaving(self.model, self._saved)
        self._undo.append(saving.remove)
        saving.install()
        self._time_train_function(stages, session, calls)

    def stop(self) -> None:
        """Leave the model as it was found, write what is left and close the log."""
        if self in _open:
            _open.remove(self)
        self._finish()
        self._active = False
        while self._undo:
            self._undo_one(self._undo.pop())
        self._close()

    def fail(self, error: Exception) -> None:
        """Record no more, and say so once; the model is restored when training ends."""
        self._active = False
        if self._calls is not None:
            self._calls.attentive = True
        if self._session is not None:
            self._session.fail("recording failed: %r" % error)
        elif not self._failed:
            logger.warning("stallscope: recording could not start, training goes on: %r", error)
        self._failed = True

    @never_raises
    def drain(self) -> None:
        """Turn calls that have ended into rows; from the flushing thread as well."""
        if self.running and self._stages is not None:
            self._stages.drain()

    def _open_session(self, world: World, counted: int) -> Session:
        options = self._options
        facts = {
            **host_facts(),
            **model_facts(self.model, world.size),
            **plan(self._params, self._epoch_iterator),
            "run_name": options.run_name,
            "synthetic": options.synthetic,
            "batch_size": options.batch_size,
            "settings": settings(os.environ),
            "timeline": timeline_is_on(os.environ),
            "gradients_reduced": True if self._single else None,
            "stamps": {"placed": [], "reason": None},
        }
        return Session(
            options.log_dir,
            world,
            facts,
            counted,
            options.flush_seconds,
            before_flush=self.drain,
            mlflow_run_id=options.mlflow_run_id,
            sink=options.sink,
            sampling=options.sampling,
            max_file_bytes=options.max_file_bytes,
        )

    def _stages_from(self, calls: EndedCalls, first_step: int, turns_done: int) -> Stages:
        wanted, single, backend = self._options.stages, self._single, keras.backend.backend()
        if backend == "tensorflow":
            from .on_tensorflow import TensorFlowStages

            return TensorFlowStages(
                calls, self.model, wanted, single, first_step, self._passes, turns_done, self._emit
            )
        steps = Steps(first_step, self._passes, turns_done)
        if backend == "torch":
            from .on_torch import TorchStages

            return TorchStages(calls, self.model, wanted, single, steps, self._emit)
        if backend == "jax":
            from .on_jax import JaxStages

            return JaxStages(calls, self.model, wanted, single, steps, self._emit)
        raise RuntimeError("nobody knows how Keras trains on %s" % backend)

    def _time_train_function(self, stages: Stages, session: Session, calls: EndedCalls) -> None:
        """Put a timer around the train function, which may be made again with stamps in it."""
        model = self.model
        found = model.train_function

        def undo() -> None:
            # Whoever has put something else there meanwhile meant it.
            if model.train_function is self._timer:
                model.train_function = found

        self._undo.append(undo)
        try:
            function = stages.function(found)
        except Exception:
            model.train_function = found
            raise
        self._timer = model.train_function = timed(function, self, session, calls, stages.saw)

    @never_raises
    def _undo_one(self, undo: Callable[[], None]) -> None:
        undo()

    @never_raises
    def _finish(self) -> None:
        if self.running and self._stages is not None:
            self._stages.settle()
            self._announce_news()
            assert self._calls is not None
            self._calls.close()

    @never_raises
    def _close(self) -> None:
        if self._session is not None:
            self._session.close(self._counted())

    def _counted(self) -> Optional[int]:
        """Steps that the optimizer has counted; JAX keeps no count that an exception interrupts."""
        try:
            return passes_counted(self._optimizer) // self._passes
        except Exception:
            return None

    # -- what Keras does between steps -----------------------------------------------------------

    @never_raises
    def epoch_begins(self, epoch: int) -> None:
        self.epoch = epoch
        if self._calls is not None:
            self._calls.epoch = epoch
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
        session, stages = self._session, self._stages
        if self.running and session is not None and stages is not None:
            with session.cost.besides():
                # The steps before it first: the row says which one comes next.
                stages.settle()
                self._announce_news()
                session.interval(kind, self.epoch, begin, end)

    # -- one call of the train function ----------------------------------------------------------

    # These two run around every call where the stages want that, and have their guards inside.

    def before_call(self) -> None:
        try:
            if getattr(self.model, "history", None) is not self._history:
                # Another fit trains the model, without this callback: an exception ended the one before.
                self.stop()
        except Exception as error:  # whatever it is, it may not reach training
            self.fail(error)

    def called(self) -> None:
        stages, calls = self._stages, self._calls
        assert stages is not None
        assert calls is not None
        try:
            stages.call_ended()
            self._announce_news()
            calls.attentive = stages.attentive
        except Exception as error:
            self.fail(error)

    @never_raises
    def aborted(self, begin: int) -> None:
        assert self._stages is not None
        self._stages.call_aborted(begin)

    def _announce_news(self) -> None:
        assert self._stages is not None
        assert self._calls is not None
        news = (self._stages.placed, self._stages.reason)
        if self._calls.seen and news != self._announced:
            self._announced = news
            self._announce()

    def _announce(self) -> None:
        """What is known only once the first step is done: TensorFlow builds and traces in it."""
        assert self._stages is not None
        assert self._session is not None
        stages = self._stages
        stamps = {"placed": list(stages.placed), "reason": stages.reason, "ready": stages.ready}
        self._session.facts({**weights(self.model), "stamps": stamps})

    def _emit(self, rows: List[StepRow]) -> None:
        session = self._session
        assert session is not None
        for row in rows:
            session.step(row)
            if self._batch_size is None and row.samples:
                # The first batch tells; the last one of an epoch may be smaller.
                self._batch_size = row.samples // row.micro
                session.facts({"batch_size": self._batch_size})

"""Record one ``fit``: patch the model, and write its steps as rows."""

from __future__ import annotations

from types import FrameType
from typing import Any, List, Optional

import keras

from ..format import StepRow
from ..guards import never_raises
from ..identity import World
from ..in_flight import Position, running_frame
from ..iterations import IterationSummer
from ..keras_common.calls import FinishedCalls
from ..keras_common.fit_recording import FitRecording
from ..keras_common.running_fit import fit_frame, planned
from ..keras_common.timing import TimedSaving, timed
from ..open_session import open_session
from ..options import Options
from ..session import Session
from .batches import timed_batches
from .facts import (
    loader_workers,
    model_facts,
    passes_counted,
    passes_per_step,
    weights,
    world_of_training,
)
from .stages import Stages

# Keras 3's own fit has it; the batches come from it.
_FITS_VARIABLE = "epoch_iterator"


class Recording(FitRecording):
    """One ``fit`` of one model: its timestamps, its timers, and what they write to the log.

    None of its methods raises: a failure ends the recording with one warning.
    """

    def __init__(self, model: Any, params: Any, options: Options) -> None:
        fit = fit_frame(model, _FITS_VARIABLE)
        super().__init__(model, options, fit)
        self._params = params
        self._epoch_iterator = None if fit is None else fit.f_locals.get(_FITS_VARIABLE)
        self._stages: Optional[Stages] = None

    # -- start and stop --------------------------------------------------------------------------

    @never_raises
    def start(self) -> None:
        world = world_of_training()
        self._single = world.size == 1
        self._passes = passes_per_step(self._optimizer)
        counted = passes_counted(self._optimizer)
        session = self._session = self._open_session(world, counted // self._passes)
        if not session.recording:
            return
        self._register()
        calls = self._calls = FinishedCalls(session.cost)
        calls.change(self.epoch)
        stages = self._stages_from(calls, session.next_step, counted % self._passes)
        self._stages = stages
        # A fit that outlives its recording must not keep the epoch iterator alive.
        iterator, self._epoch_iterator = self._epoch_iterator, None
        self._undo.append(stages.remove)
        stages.install(iterator)
        saving = TimedSaving(self.model, self._begin_checkpoint, self._record_checkpoint)
        self._undo.append(saving.remove)
        saving.install()
        self._time_train_function(stages, session, calls)

    def stop(self) -> None:
        self._unregister()
        self._finish()
        self._active = False
        self._undo_all()
        self._close()

    @never_raises
    def drain(self) -> None:
        """Make rows of finished calls; the flushing thread calls it too."""
        if self.running and self._stages is not None:
            self._stages.drain()

    def _open_session(self, world: World, counted: int) -> Session:
        options = self._options
        facts = {
            **model_facts(self.model, world.size),
            **planned(self._params),
            "loader_workers": loader_workers(self._epoch_iterator),
            "gradients_reduced": True if self._single else None,
            "stamps": {"placed": [], "reason": None},
        }
        return open_session(
            options,
            world,
            facts,
            counted,
            before_flush=self.drain,
            position=self.position,
        )

    def _stages_from(self, calls: FinishedCalls, first_step: int, iterations_done: int) -> Stages:
        wanted, single, backend = self._options.stages, self._single, keras.backend.backend()
        if backend == "tensorflow":
            from .on_tensorflow import TensorFlowStages

            return TensorFlowStages(
                calls,
                self.model,
                wanted,
                single,
                first_step,
                self._passes,
                iterations_done,
                self._emit,
            )
        steps = IterationSummer(first_step, self._passes, iterations_done)
        if backend == "torch":
            from .on_torch import TorchStages

            return TorchStages(calls, self.model, wanted, single, steps, self._emit)
        if backend == "jax":
            from .on_jax import JaxStages

            return JaxStages(calls, self.model, wanted, single, steps, self._emit)
        raise RuntimeError("training of Keras on %s cannot be recorded" % backend)

    def _time_train_function(self, stages: Stages, session: Session, calls: FinishedCalls) -> None:
        """Put a timer around the train function, which may be made again with timestamps in it."""
        model = self.model
        found = model.train_function

        def undo() -> None:
            # Someone else has replaced it since: leave that.
            if model.train_function is self._timer:
                model.train_function = found

        self._undo.append(undo)
        try:
            function = stages.function(found)
        except Exception:
            model.train_function = found
            raise
        timer = timed(function, self, session, calls, stages.saw, stages.key, stages.last_of)
        self._timer = model.train_function = stages.timer = timer

    def _position_in_call(self, begin: int) -> Position:
        return (
            super()._position_in_call(begin)
            if self._stages is None
            else self._stages.position(begin)
        )

    def _position_between_calls(self) -> Position:
        fetch = running_frame(self._thread, timed_batches.__code__)
        return Position() if fetch is None else Position(fetch.f_locals.get("begin"))

    def _running_fit(self) -> Optional[FrameType]:
        return fit_frame(self.model, _FITS_VARIABLE)

    def _make_rows(self) -> None:
        if self._stages is not None:
            self._stages.settle()

    def _counted(self) -> Optional[int]:
        """Return the optimizer's count of steps; with JAX an exception can leave it unreadable."""
        try:
            return passes_counted(self._optimizer) // self._passes
        except Exception:
            return None

    # -- one call of the train function ----------------------------------------------------------

    # These two run around every call where the stages need that, and catch their own errors.

    def before_call(self) -> None:
        try:
            if getattr(self.model, "history", None) is not self._history:
                # Another fit trains the model without this callback, after an exception in this fit.
                self.stop()
        except Exception as error:  # no error may reach training
            self.fail(error)

    def after_call(self) -> None:
        stages, calls = self._stages, self._calls
        assert stages is not None
        assert calls is not None
        try:
            stages.call_ended()
            self._update_facts()
            calls.schedule_check(every_call=stages.attentive)
        except Exception as error:
            self.fail(error)

    @never_raises
    def call_aborted(self, begin: int) -> None:
        assert self._stages is not None
        self._stages.call_aborted(begin)

    def _update_facts(self) -> None:
        assert self._stages is not None
        assert self._calls is not None
        news = (self._stages.placed, self._stages.reason)
        if self._calls.checks and news != self._recorded_facts:
            self._recorded_facts = news
            self._record_facts()

    def _record_facts(self) -> None:
        """Record facts that are known only after the first step: TensorFlow builds and traces in it."""
        assert self._stages is not None
        assert self._session is not None
        stages = self._stages
        timestamps = {"placed": list(stages.placed), "reason": stages.reason, "ready": stages.ready}
        self._session.facts({**weights(self.model), "stamps": timestamps})

    def _emit(self, rows: List[StepRow]) -> None:
        session = self._session
        assert session is not None
        for row in rows:
            session.step(row)
            if self._batch_size is None and row.samples:
                # The first batch shows it; the last batch of an epoch may be smaller.
                self._batch_size = row.samples // row.micro
                session.facts({"batch_size": self._batch_size})

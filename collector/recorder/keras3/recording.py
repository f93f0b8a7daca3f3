"""One recording: what is put into a model for one ``fit``, and what comes out of it as rows."""

from __future__ import annotations

from types import FrameType
from typing import Any, List, Optional

import keras

from ..fit_recording import FitRecording
from ..format import StepRow
from ..guards import never_raises
from ..identity import World
from ..opening import open_session
from ..options import Options
from ..session import Session
from ..tf_keras.calls import EndedCalls
from ..tf_keras.timing import TimedSaving, timed
from .batches import fit_of
from .facts import model_facts, passes_counted, passes_per_step, plan, weights, world_of_training
from .stages import Stages
from .steps import Steps


class Recording(FitRecording):
    """One ``fit`` of one model: its timestamps and timers, and what they see on its way to the log.

    Whatever fails in here stays in here: none of its methods raises.
    """

    def __init__(self, model: Any, params: Any, options: Options) -> None:
        fit = fit_of(model)
        super().__init__(model, options, fit)
        self._params = params
        self._epoch_iterator = None if fit is None else fit.f_locals.get("epoch_iterator")
        self._stages: Optional[Stages] = None

    # -- begin and end ---------------------------------------------------------------------------

    @never_raises
    def start(self) -> None:
        world = world_of_training()
        self._single = world.size == 1
        self._passes = passes_per_step(self._optimizer)
        counted = passes_counted(self._optimizer)
        session = self._session = self._open_session(world, counted // self._passes)
        if not session.recording:
            return
        self._begin()
        calls = self._calls = EndedCalls(session.cost)
        calls.change(self.epoch)
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
        self._forget()
        self._finish()
        self._active = False
        self._undo_all()
        self._close()

    @never_raises
    def drain(self) -> None:
        """Turn calls that have ended into rows; from the flushing thread as well."""
        if self.running and self._stages is not None:
            self._stages.drain()

    def _open_session(self, world: World, counted: int) -> Session:
        options = self._options
        facts = {
            **model_facts(self.model, world.size),
            **plan(self._params, self._epoch_iterator),
            "gradients_reduced": True if self._single else None,
            "stamps": {"placed": [], "reason": None},
        }
        return open_session(
            options,
            world,
            facts,
            counted,
            before_flush=self.drain,
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
        """Put a timer around the train function, which may be made again with timestamps in it."""
        model = self.model
        found = model.train_function

        def undo() -> None:
            # Something else was put there meanwhile: leave it.
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

    def _fit_that_runs(self) -> Optional[FrameType]:
        return fit_of(self.model)

    def _make_rows(self) -> None:
        if self._stages is not None:
            self._stages.settle()

    def _counted(self) -> Optional[int]:
        """Steps that the optimizer has counted; JAX keeps no count that an exception interrupts."""
        try:
            return passes_counted(self._optimizer) // self._passes
        except Exception:
            return None

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
            calls.attend(to_all=stages.attentive)
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
        if self._calls.looked and news != self._announced:
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

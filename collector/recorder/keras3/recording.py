"""Record one ``fit``: patch the model, and write its steps as rows."""

from __future__ import annotations

from typing import Any, Dict, List, Optional

import keras

from ..guards import never_raises
from ..hangs.in_flight import Position, running_frame
from ..job.world import World, world_of_training
from ..keras_common.calls import FinishedCalls
from ..keras_common.fit_recording import FitRecording
from ..keras_common.timing import TimedFunction, timed
from ..options import Options
from ..session import Session
from ..step_log.format import StepRow
from .batches import timed_batches
from .facts import (
    loader_workers,
    model_facts,
    passes_counted,
    passes_per_step,
    weights,
)
from .stages import KerasFit, Stages


class Recording(FitRecording):
    """One ``fit`` of one model, with its timestamps and timers."""

    # Keras 3's own fit has it; the batches come from it.
    fit_variable = "epoch_iterator"
    _stream: Stages

    def __init__(self, model: Any, params: Optional[Dict[str, Any]], options: Options) -> None:
        super().__init__(model, params, options)
        fit = self._running_fit()
        self._epoch_iterator = None if fit is None else fit.f_locals.get(self.fit_variable)

    # -- start -----------------------------------------------------------------------------------

    def _world_of_training(self) -> World:
        self._passes = passes_per_step(self._optimizer)
        return world_of_training()

    def _facts(self) -> Dict[str, Any]:
        return {
            **model_facts(self.model, self._size),
            "loader_workers": loader_workers(self._epoch_iterator),
            "gradients_reduced": True if self._size == 1 else None,
            "stamps": {"placed": [], "reason": None},
        }

    def _install(self, session: Session, calls: FinishedCalls) -> None:
        stages = self._stream = self._stages_from(calls, session.next_step)
        # A fit that outlives its recording must not keep the epoch iterator alive.
        iterator, self._epoch_iterator = self._epoch_iterator, None
        self._undo.append(stages.remove)
        stages.install(iterator)

    def _stages_from(self, calls: FinishedCalls, first_step: int) -> Stages:
        counted = (first_step, self._passes, self._counted_before)
        single = self._size == 1
        fit = KerasFit(calls, self.model, self._options.stages, single, counted, self._emit)
        backend = keras.backend.backend()
        if backend == "tensorflow":
            from .on_tensorflow import TensorFlowStages

            return TensorFlowStages(fit)
        if backend == "torch":
            from .on_torch import TorchStages

            return TorchStages(fit)
        if backend == "jax":
            from .on_jax import JaxStages

            return JaxStages(fit)
        raise RuntimeError("training of Keras on %s cannot be recorded" % backend)

    def _timed(self, train_function: Any, session: Session, calls: FinishedCalls) -> TimedFunction:
        stages = self._stream
        function = stages.function(train_function, self._runs_timer)
        return timed(function, self, session, calls, stages.saw, stages.key, stages.last_of)

    def _position_in_call(self, begin: int) -> Position:
        return self._stream.position(begin)

    def _position_between_calls(self) -> Position:
        fetch = running_frame(self._thread, timed_batches.__code__)
        return Position() if fetch is None else Position(fetch.f_locals.get("begin"))

    def _make_rows(self) -> None:
        self._stream.settle()

    def _passes_counted(self) -> int:
        return passes_counted(self._optimizer)

    # -- one call of the train function ----------------------------------------------------------

    # These two run around calls now and then, or around every call if the stages are attentive.

    @never_raises
    def before_call(self) -> None:
        if getattr(self.model, "history", None) is not self._history:
            # Another fit trains the model without this callback, after an exception in this fit.
            self.stop()

    @never_raises
    def after_call(self) -> None:
        stages, calls = self._stream, self._calls
        assert calls is not None
        stages.check()
        self._update_facts()
        calls.schedule_check(every_call=stages.attentive)

    def _update_facts(self) -> None:
        assert self._calls is not None
        news = (self._stream.placed, self._stream.reason)
        if self._calls.checks and news != self._recorded_facts:
            self._recorded_facts = news
            self._record_facts()

    def _record_facts(self) -> None:
        """Record facts that are known only after the first step: TensorFlow builds and traces in it."""
        assert self._session is not None
        stages = self._stream
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

"""Record one ``fit``: patch the model, and write its steps as rows."""

from __future__ import annotations

import logging
from typing import Any, Dict, List, Optional, Tuple

from ..guards import never_raises
from ..hangs import Position
from ..job.job_facts import LearningRates
from ..job.world import World, world_of_training
from ..keras_common.finished_calls import CallAssembler, FinishedCalls, code_of, is_made_by
from ..keras_common.fit_recording import FitRecording, TimedFunction, timed
from ..options import Options
from ..session import Session
from ..step_log.line_format import StepRow
from .instrument import Instrumentation
from .loader import READER, ProbedFunction, keras
from .stream import StepStream
from .tf_keras_facts import (
    fit_facts,
    graph_reduces,
    learning_rate,
    model_facts,
    parameters,
    passes_counted,
    passes_done,
    passes_per_step,
    steps_per_execution,
    weights,
    why_no_timestamps,
)
from .timestamp_ring import CAPACITY, TimestampRing

logger = logging.getLogger("stallscope")

# Keras' tuner may raise the steps of a call to any number.
_TUNED = "autotune_steps_per_execution"
# The first calls show almost everything that calls can show.
_FIRST_CALLS = 3


class Recording(FitRecording):
    """One ``fit`` of one model, with its timestamps and timers."""

    def __init__(self, model: Any, params: Optional[Dict[str, Any]], options: Options) -> None:
        super().__init__(model, params, options)
        self._weights_recorded = False
        self._graph_reduces: Optional[bool] = None
        self._rates = LearningRates()
        self._ring: Optional[TimestampRing] = None
        self._probed: Optional[ProbedFunction] = None
        self._instrumentation: Optional[Instrumentation] = None

    # -- start and stop --------------------------------------------------------------------------

    def _world_of_training(self) -> World:
        model = self.model
        self._several_per_call = (
            bool(getattr(model, _TUNED, False)) or steps_per_execution(model) != 1
        )
        self._passes = passes_per_step(self._optimizer)
        self._no_timestamps = why_no_timestamps(model, self._options.stages)
        return world_of_training()

    def _takes_several(self) -> bool:
        return self._several_per_call

    def _facts(self) -> Dict[str, Any]:
        return {
            **model_facts(self.model, self._size),
            **fit_facts(self.model),
            "stamps": {"placed": [], "reason": self._no_timestamps},
        }

    def _install(self, session: Session, calls: FinishedCalls) -> None:
        model, single = self.model, self._size == 1
        ring = None
        if not self._no_timestamps:
            ring = TimestampRing(max(CAPACITY, 4 * steps_per_execution(model)))
        self._ring = ring
        assembler = CallAssembler(
            session.next_step, self._passes, not single, passes_done(self._optimizer)
        )
        emits = self._emit, session.tokens
        self._stream = StepStream(calls, ring, assembler, self._several_per_call, *emits)
        self._instrumentation = Instrumentation(ring, self._several_per_call, single)
        self._undo.append(self._instrumentation.remove)
        self._instrumentation.install(model)

    def _timed(self, train_function: Any, session: Session, calls: FinishedCalls) -> TimedFunction:
        """Put a timer around a train function that is traced with timestamps.

        Keras has made a train function already, and an earlier fit may have traced it: make another one.
        A custom function stays, and its content is unknown.
        """
        model, instrumentation = self.model, self._instrumentation
        assert instrumentation is not None
        model.train_function = None
        again = model.make_train_function()
        if train_function is not None and code_of(train_function) is not code_of(again):
            again = train_function
        elif is_made_by(keras.Model, again):
            instrumentation.takes_out = self._runs_timer
        if self._probes:
            again = self._probed = ProbedFunction(
                again, self._input_probe(READER), self._batches_per_epoch()
            )
            self._undo.append(again.end_probe)
        return timed(again, self, session, calls, key=instrumentation.key)

    def fail(self, error: Exception) -> None:
        super().fail(error)
        if self._instrumentation is not None:
            self._instrumentation.active = False

    def _position_in_call(self, begin: int) -> Position:
        return (
            super()._position_in_call(begin) if self._ring is None else self._ring.position(begin)
        )

    def _make_rows(self) -> None:
        self._settle()
        self._stream.drain()

    def _next_step(self) -> Optional[int]:
        next_step: int = self._stream.next_step()
        return next_step

    def _passes_counted(self) -> int:
        return passes_counted(self._optimizer)

    # -- events between steps --------------------------------------------------------------------

    @never_raises
    def begin_epoch(self, epoch: int) -> None:
        # Before the first epoch a checkpoint's rate may not have been broadcast yet.
        if self.epoch is not None and self.running and self._session is not None:
            changes = self._rates.changed(epoch, learning_rate(self._optimizer))
            if changes is not None:
                self._session.facts({"learning_rates": changes})
        super().begin_epoch(epoch)
        if self._probed is not None:
            self._probed.begin_epoch()

    # -- one call of the train function ----------------------------------------------------------

    # These run around the first calls only, unless a call runs several steps.

    @never_raises
    def before_call(self) -> None:
        if getattr(self.model, "history", None) is not self._history:
            self._give_way()
        elif self.running:
            self._check_before_call()

    @never_raises
    def after_call(self) -> None:
        self._stream.check()
        self._update_facts()

    def _check_before_call(self) -> None:
        calls = self._calls
        assert calls is not None
        if calls.checks and not self._stream.settled:
            self._settle()
            self._stream.drain(between_calls=True)
        if calls.checks and not self._weights_recorded:
            self._weights_recorded = True
            self._record_weights()
        if self._several_per_call:
            # The last call of an epoch may run fewer steps than the others.
            calls.change(self.epoch, steps_per_execution(self.model))
        calls.schedule_check(every_call=self._several_per_call or calls.checks < _FIRST_CALLS)

    def _give_way(self) -> None:
        """Stop, because another fit trains the model after an exception in this one."""
        self.stop()
        # The model needs a train function, even if it had none before the recording.
        self.model.make_train_function()

    def _settle(self) -> None:
        assert self._session is not None
        if not self._stream.settled:
            counted = passes_counted(self._optimizer)
            self._stream.settle(self._counted_before, counted, self._passes, self._session.renumber)

    def _record_weights(self) -> None:
        """Record some weights after the first batch, when Horovod's callback has broadcast them."""
        assert self._session is not None
        # A tuner decides on each rank how many steps a call runs.
        if self._size == 1 or getattr(self.model, _TUNED, False):
            return
        sample = weights(self.model)
        if sample is not None:
            self._session.facts({"weights": {**sample, "after": 1}})

    def _emit(self, rows: List[StepRow]) -> None:
        session = self._session
        assert session is not None
        if self._instrumentation is not None and self._instrumentation.several_tapes:
            rows = [row._replace(ready=None, reduced=None) for row in rows]
        for row in rows:
            session.step(row)
        if self._batch_size is None:
            # The first batch shows it; the last batch of an epoch may be smaller.
            whole = (row.samples for row in rows if row.micro == self._passes)
            self._batch_size = next(whole, None)
            if self._batch_size is not None:
                session.facts({"batch_size": self._batch_size})

    # -- facts that are known only after the trace -----------------------------------------------

    def _news(self) -> Tuple[Any, ...]:
        """Return a value that changes whenever there is something to record."""
        instrumentation = self._instrumentation
        assert instrumentation is not None
        return (
            len(instrumentation.placed),
            instrumentation.reduction_traced,
            instrumentation.several_tapes,
            instrumentation.trouble,
            self._stream.trouble,
        )

    def _update_facts(self) -> None:
        if self._calls is not None and self._calls.checks and self._news() != self._recorded_facts:
            self._record_facts()

    def _record_facts(self) -> None:
        instrumentation, stream, session = self._instrumentation, self._stream, self._session
        assert instrumentation is not None
        assert session is not None
        reduced = self._reduced(instrumentation)
        trouble = self._no_timestamps or instrumentation.trouble or stream.trouble
        gradients, placed = instrumentation.gradients, list(instrumentation.placed)
        if instrumentation.several_tapes:
            # The last tape's gradients are not all of them, and its timestamps are not in the rows.
            gradients, placed = {}, ["data"]
        session.facts(
            {
                **gradients,
                "gradients_reduced": reduced,
                "parameters": parameters(self.model),
                "stamps": {
                    "placed": placed if stream.has_timestamps else [],
                    "reason": trouble or self._why_not_ready(instrumentation, reduced),
                },
            }
        )
        self._recorded_facts = self._news()

    def _reduced(self, instrumentation: Instrumentation) -> Optional[bool]:
        """Return whether the ranks' gradients are reduced; None where that is unknown."""
        if self._size == 1 or instrumentation.reduction_traced:
            return True
        if self._recorded_facts is None:
            self._graph_reduces = graph_reduces(self.model)
            if self._graph_reduces is False:
                logger.error(
                    "stallscope: %d ranks train, but their gradients are not reduced: each rank "
                    "trains its own model. A custom train_step must reduce them itself, with "
                    "hvd.DistributedGradientTape or optimizer.minimize().",
                    self._size,
                )
        return self._graph_reduces

    def _why_not_ready(
        self, instrumentation: Instrumentation, reduced: Optional[bool]
    ) -> Optional[str]:
        if instrumentation.several_tapes:
            return "the train step reduces gradients several times"
        if "ready" in instrumentation.placed:
            return None
        if self._size == 1:
            return "the train step does not take its gradients from the optimizer"
        if reduced is False:
            return "the gradients are not reduced"
        return "the gradients are reduced outside of Horovod's optimizer or tape"

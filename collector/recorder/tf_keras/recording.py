"""Record one ``fit``: patch the model, and write its steps as rows."""

from __future__ import annotations

import logging
import os
from functools import partial
from types import FrameType
from typing import Any, List, Optional, Tuple

from ..format import StepRow
from ..guards import never_raises
from ..identity import World, world_from_environment
from ..in_flight import Position
from ..keras_common.calls import FinishedCalls
from ..keras_common.fit_recording import FitRecording
from ..keras_common.running_fit import fit_frame, planned
from ..keras_common.steps import StepAssembler
from ..keras_common.stream import StepStream
from ..keras_common.timing import TimedSaving, calls_through, code_of, is_made_by, timed
from ..learning_rate import LearningRates
from ..open_session import open_session
from ..options import Options
from ..session import Session
from .facts import (
    horovod_world,
    learning_rate,
    model_facts,
    parameters,
    steps_per_execution,
    weights,
    why_no_timestamps,
)
from .fit_facts import fit_facts
from .instrument import Instrumentation
from .keras_2 import keras
from .optimizers import graph_reduces, passes_counted, passes_done, passes_per_step
from .timestamp_ring import CAPACITY, TimestampRing

logger = logging.getLogger("stallscope")

# Keras' tuner may raise the steps of a call to any number.
_TUNED = "autotune_steps_per_execution"
# The first calls show almost everything that calls can show.
_FIRST_CALLS = 3


class Recording(FitRecording):
    """One ``fit`` of one model: its timestamps, its timers, and what they write to the log.

    None of its methods raises: a failure ends the recording with one warning.
    """

    def __init__(self, model: Any, options: Options) -> None:
        super().__init__(model, options, fit_frame(model))
        self._weights_recorded = False
        self._graph_reduces: Optional[bool] = None
        self._rates = LearningRates()
        self._stream: Optional[StepStream] = None
        self._ring: Optional[TimestampRing] = None
        self._instrumentation: Optional[Instrumentation] = None

    # -- start and stop --------------------------------------------------------------------------

    @never_raises
    def start(self) -> None:
        model, optimizer = self.model, self._optimizer
        world = horovod_world() or world_from_environment(os.environ)
        tuned = bool(getattr(model, _TUNED, False))
        self._size = world.size
        self._several_per_call = tuned or steps_per_execution(model) != 1
        self._passes = passes_per_step(optimizer)
        self._counted_before = passes_counted(optimizer)
        self._no_timestamps = why_no_timestamps(model, self._options.stages)
        ring = self._ring = (
            None
            if self._no_timestamps
            else TimestampRing(max(CAPACITY, 4 * steps_per_execution(model)))
        )
        session = self._session = self._open_session(world)
        if not session.recording:
            return
        assembler = StepAssembler(
            session.next_step, self._passes, world.size > 1, passes_done(optimizer)
        )
        calls = self._calls = FinishedCalls(session.cost)
        calls.change(self.epoch)
        self._stream = StepStream(calls, ring, assembler, self._several_per_call, self._emit)
        self._register()
        self._instrumentation = Instrumentation(
            ring, self._several_per_call, single_process=world.size == 1
        )
        self._undo.append(self._instrumentation.remove)
        self._instrumentation.install(model)
        saving = TimedSaving(model, self._begin_checkpoint, self._record_checkpoint)
        self._undo.append(saving.remove)
        saving.install()
        self._time_train_function(session, calls, self._instrumentation)

    def stop(self) -> None:
        self._unregister()
        self._undo_all()
        self._finish()
        self._active = False
        self._close()

    def fail(self, error: Exception) -> None:
        super().fail(error)
        if self._instrumentation is not None:
            self._instrumentation.active = False

    @never_raises
    def drain(self, between_calls: bool = False) -> None:
        """Make rows of finished calls; the flushing thread calls it too."""
        if self.running and self._stream is not None:
            self._stream.drain(between_calls)

    def _open_session(self, world: World) -> Session:
        options = self._options
        facts = {
            **model_facts(self.model, world.size),
            **planned(getattr(self._history, "params", None)),
            **fit_facts(self.model),
            "stamps": {"placed": [], "reason": self._no_timestamps},
        }
        return open_session(
            options,
            world,
            facts,
            self._counted_before // self._passes,
            before_flush=self.drain,
            position=self.position,
        )

    def _time_train_function(
        self, session: Session, calls: FinishedCalls, instrumentation: Instrumentation
    ) -> None:
        """Put a timer around a train function that is traced with the timestamps in it.

        Fit has made its train function already, and an earlier fit may have traced it: make another
        one. A custom function stays, and its content is unknown.
        """
        model = self.model
        found, graph = model.train_function, getattr(model, "train_tf_function", None)

        def undo() -> None:
            # Someone else has replaced it since: leave that.
            if model.train_function is self._timer:
                model.train_function = found
                model.train_tf_function = graph

        self._undo.append(undo)
        model.train_function = None
        made = model.make_train_function()
        own = found is not None and code_of(found) is not code_of(made)
        function, key = found if own else made, instrumentation.key
        self._timer = model.train_function = timed(function, self, session, calls, key=key)
        if not own and is_made_by(keras.Model, made):
            instrumentation.takes_out = partial(calls_through, self._timer)

    def _position_in_call(self, begin: int) -> Position:
        return (
            super()._position_in_call(begin) if self._ring is None else self._ring.position(begin)
        )

    def _running_fit(self) -> Optional[FrameType]:
        return fit_frame(self.model)

    def _make_rows(self) -> None:
        self._settle()
        self.drain()

    def _counted(self) -> int:
        return passes_counted(self._optimizer) // self._passes

    # -- events between steps --------------------------------------------------------------------

    @never_raises
    def begin_epoch(self, epoch: int) -> None:
        # Before the first epoch a checkpoint's rate may not have been broadcast yet.
        if self.epoch is not None and self.running and self._session is not None:
            changes = self._rates.changed(epoch, learning_rate(self._optimizer))
            if changes is not None:
                self._session.facts({"learning_rates": changes})
        super().begin_epoch(epoch)

    # -- one call of the train function ----------------------------------------------------------

    # These run around the first calls only, unless a call runs several steps.

    def before_call(self) -> None:
        try:
            if getattr(self.model, "history", None) is not self._history:
                self._give_way()
            elif self.running:
                self._check_before_call()
        except Exception as error:  # no error may reach training
            self.fail(error)

    def after_call(self) -> None:
        assert self._stream is not None
        try:
            self._stream.check()
            self._update_facts()
        except Exception as error:
            self.fail(error)

    def _check_before_call(self) -> None:
        stream, calls = self._stream, self._calls
        assert stream is not None
        assert calls is not None
        if calls.checks and not stream.settled:
            self._settle()
            self.drain(between_calls=True)
        if calls.checks and not self._weights_recorded:
            self._weights_recorded = True
            self._record_weights()
        if self._several_per_call:
            # The last call of an epoch may run fewer steps than the others.
            calls.change(self.epoch, steps_per_execution(self.model))
        calls.schedule_check(every_call=self._several_per_call or calls.checks < _FIRST_CALLS)

    @never_raises
    def call_aborted(self, begin: int) -> None:
        assert self._stream is not None
        self._stream.abort(begin)

    def _give_way(self) -> None:
        """Stop, because another fit trains the model after an exception in this one."""
        self.stop()
        # The model needs a train function, even if it had none before the recording.
        self.model.make_train_function()

    def _settle(self) -> None:
        assert self._stream is not None
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
        found = weights(self.model)
        if found is not None:
            self._session.facts({"weights": {**found, "after": 1}})

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
        instrumentation, stream = self._instrumentation, self._stream
        assert instrumentation is not None
        assert stream is not None
        return (
            len(instrumentation.placed),
            instrumentation.reduction_traced,
            instrumentation.several_tapes,
            instrumentation.trouble,
            stream.trouble,
        )

    def _update_facts(self) -> None:
        if self._calls is not None and self._calls.checks and self._news() != self._recorded_facts:
            self._record_facts()

    def _record_facts(self) -> None:
        instrumentation, stream, session = self._instrumentation, self._stream, self._session
        assert instrumentation is not None
        assert stream is not None
        assert session is not None
        reduced = self._reduced(instrumentation)
        trouble = self._no_timestamps or instrumentation.trouble or stream.trouble
        # The last tape's gradients are not all of them.
        gradients = {} if instrumentation.several_tapes else instrumentation.gradients
        session.facts(
            {
                **gradients,
                "gradients_reduced": reduced,
                "parameters": parameters(self.model),
                "stamps": {
                    "placed": _timestamps_in_rows(instrumentation) if stream.has_timestamps else [],
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


def _timestamps_in_rows(instrumentation: Instrumentation) -> List[str]:
    """Return the timestamps that rows have."""
    return ["data"] if instrumentation.several_tapes else list(instrumentation.placed)

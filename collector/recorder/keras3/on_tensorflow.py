"""Keras 3 on TensorFlow: timestamps in the graph, around the train step and, without XLA, inside it.

By default Keras compiles the train step with XLA, which has no clock. The function that takes batches
from the iterator is not compiled: timestamps go there, before and after the step.
"""

from __future__ import annotations

import functools
from typing import Any, Callable, Dict, Optional

import keras

from ..hangs import Position
from ..input.loader_wrappers import InputProbe
from ..job.job_facts import SWITCHED_OFF, WHOLE_STEP
from ..keras_common.finished_calls import CallAssembler, code_of, is_made_by
from ..tf_keras.instrument import Instrumentation, tensors_of
from ..tf_keras.loader import READER, PipelineFigures, ProbedFunction
from ..tf_keras.stream import StepStream
from ..tf_keras.timestamp_ring import CAPACITY, READY, TimestampRing
from .stages import KerasFit, Stages

# The method with which Keras wraps the train step, inside the function that takes batches.
_AROUND_THE_STEP = "_autoconvert_optionals"


class TensorFlowStages(Stages):
    """Stages where TensorFlow computes, and takes its batches in the graph."""

    reader = READER

    def __init__(self, fit: KerasFit) -> None:
        model = self._model = fit.model
        self._several_per_call = int(model.steps_per_execution) != 1
        self._compiled = bool(model.jit_compile) and not model.run_eagerly
        self.reason = self._why_not(fit)
        ring = None
        if self.reason is None:
            ring = TimestampRing(max(CAPACITY, 4 * int(model.steps_per_execution)))
            self.placed = ("data", "ready", "reduced")
            self.ready = WHOLE_STEP if self._compiled else None
        first_step, passes, iterations_done = fit.counted
        assembler = CallAssembler(first_step, passes, not fit.single, iterations_done)
        self._ring = ring
        emits = fit.emit, fit.emit_padding
        self._stream = StepStream(fit.calls, ring, assembler, self._several_per_call, *emits)
        # The optimizer counts in every process of a job without Horovod.
        self._stream.settled = True
        self._instrumentation = StepInstrumentation(ring, self._several_per_call, self._compiled)
        self.key = self._instrumentation.key
        # Makes the function that fetches batches ahead, and that one.
        self._with_probe: Optional[Callable[[Any], ProbedFunction]] = None
        self._probed: Optional[ProbedFunction] = None
        self._figures: Optional[PipelineFigures] = None

    def probe_with(self, probe: InputProbe, length: Optional[int]) -> None:
        self._with_probe = functools.partial(ProbedFunction, probe=probe, length=length)

    def install(self, epoch_iterator: Any) -> None:
        self._figures = PipelineFigures.of(epoch_iterator)

    def loader_fact(self, now: int, at_the_end: bool) -> Optional[Dict[str, Any]]:
        return None if self._figures is None else self._figures.fact(now, at_the_end)

    def begin_epoch(self) -> None:
        if self._probed is not None:
            self._probed.begin_epoch()

    def _why_not(self, fit: KerasFit) -> Optional[str]:
        if not fit.wanted:
            return SWITCHED_OFF
        if type(self._model.distribute_strategy).__name__ != "_DefaultDistributionStrategy":
            return "tf.distribute runs the train step in replicas"
        if not fit.single:
            return "nothing shows when the gradients of several ranks are reduced"
        if not hasattr(self._model, _AROUND_THE_STEP):
            return "this version of Keras builds its train step differently"
        return None

    def position(self, begin: int) -> Position:
        return super().position(begin) if self._ring is None else self._ring.position(begin)

    def remove(self) -> None:
        if self._probed is not None:
            self._probed.end_probe()
        self._instrumentation.remove()

    def function(
        self, train_function: Callable[..., Any], is_timed: Callable[[], bool]
    ) -> Callable[..., Any]:
        function = self._traced_again(train_function, is_timed)
        if self._with_probe is None:
            return function
        self._probed = self._with_probe(function)
        return self._probed

    def _traced_again(
        self, train_function: Callable[..., Any], is_timed: Callable[[], bool]
    ) -> Callable[..., Any]:
        """Trace Keras' own train function again, with timestamps; custom ones stay unchanged."""
        model = self._model
        if self.reason is None:
            model.train_function = None
            self._instrumentation.install(model)
            model.make_train_function()
            self._instrumentation.unpatch(model)
            again = model.train_function
            if is_made_by(keras.Model, again):
                self._instrumentation.takes_out = is_timed
            if again is not None and code_of(train_function) is code_of(again):
                return again  # type: ignore[no-any-return]
            self._instrumentation.active = False
            self.placed, self.reason = (), "the model has a custom train function"
            self.ready = None
        return train_function

    def check(self) -> None:
        self._stream.check()
        # The first call traces the graph, and batches of another shape may do so later.
        self.attentive = self._several_per_call
        self._check_for_trouble()

    def abort(self, begin: int) -> None:
        self._stream.abort(begin)

    def _check_for_trouble(self) -> None:
        trouble = self._instrumentation.trouble or self._stream.trouble
        if trouble is not None and self.reason is None:
            self.placed = tuple(self._instrumentation.placed) if self._stream.has_timestamps else ()
            self.reason, self.ready = trouble, None
        elif self.reason is None and "ready" not in self._instrumentation.placed:
            self.placed = ("data",)
            self.reason = "the train step does not pass its gradients to the optimizer"

    def drain(self) -> None:
        self._stream.drain()

    def next_step(self) -> int:
        return self._stream.next_step()

    def settle(self) -> None:
        self._stream.drain(between_calls=True)
        self._check_for_trouble()


class StepInstrumentation(Instrumentation):
    """Timestamps around the train step, and after the gradients where the step is not compiled."""

    def __init__(
        self, ring: Optional[TimestampRing], several_per_call: bool, compiled: bool
    ) -> None:
        super().__init__(ring, several_per_call, single_process=True)
        self._compiled = compiled

    def install(self, model: Any) -> None:
        self._replace(model, _AROUND_THE_STEP, self._around)
        if not self._compiled and getattr(model, "optimizer", None) is not None:
            self._replace(model.optimizer, "apply", self._applied)

    def unpatch(self, model: Any) -> None:
        """Unpatch the model: its train function has been made."""
        vars(model).pop(_AROUND_THE_STEP, None)

    def _around(self, original: Any) -> Any:
        def around(step: Any) -> Any:
            def with_timestamps(data: Any) -> Any:
                outputs = step(self._timestamp_data(data))
                if self._compiled:
                    self._finish_compiled_step(outputs)
                return self._finish_step(outputs)

            return original(with_timestamps)

        return around

    def _applied(self, original: Any) -> Any:
        def apply(gradients: Any, *args: Any, **kwargs: Any) -> Any:
            self._timestamp_gradients(gradients, args[0] if args else None)
            return original(gradients, *args, **kwargs)

        return apply

    def _finish_compiled_step(self, outputs: Any) -> None:
        try:
            ring, tensors = self._ring_here(), tensors_of(outputs)
            if ring is not None and tensors:
                self._timestamp(ring, READY, tensors)
                self._note_placed("ready")
        except Exception as error:  # an error that leaves a trace would end the training
            self.active = False
            self.trouble = "no timestamps could be put into the train step: %r" % error

"""Keras on torch: batches come before the train function, and a hook sees every gradient."""

from __future__ import annotations

from typing import Any, Callable, Optional

from ..format import StepRow
from ..pytorch.facts import device_types
from ..pytorch.gradients import GradientClock
from ..tf_keras.calls import EndedCalls
from ..tf_keras.steps import Call
from .stages import WHOLE_STEP, Emit, FetchedInPython
from .steps import Steps, samples_of, times_of


class TorchStages(FetchedInPython):
    """Stages where torch computes, and the host with it."""

    def __init__(
        self, calls: EndedCalls, model: Any, stages: bool, single: bool, steps: Steps, emit: Emit
    ) -> None:
        super().__init__(calls, model, steps, emit)
        self._parameters = [variable.value for variable in model.trainable_variables]
        self._gradients = GradientClock()
        self._compiled = bool(getattr(model, "jit_compile", False)) and not model.run_eagerly
        self.saw = _last_of(self._gradients)
        self.placed = ("data",)
        self.reason = self._why_not(stages, single)
        if self.reason is None:
            self.placed = ("data", "ready", "reduced")
            self.ready = WHOLE_STEP if self._compiled else None

    def _why_not(self, stages: bool, single: bool) -> Optional[str]:
        if not stages:
            return "switched off with stages=False"
        for kind in device_types(self._parameters):
            if kind != "cpu":
                return "on %s gradients are ready later than the host can see" % kind.upper()
        if not single:
            return "nothing tells when the gradients of several ranks are reduced"
        return None

    def install(self, epoch_iterator: Any) -> None:
        super().install(epoch_iterator)
        if "ready" in self.placed and not self._compiled:
            self._gradients.hook(self._parameters)
            self._gradients.watch_backwards()

    def remove(self) -> None:
        super().remove()
        self._gradients.remove()

    def _known(self) -> int:
        return len(self.calls)

    def _turn(self, call: Call) -> StepRow:
        assert call.end is not None
        fetches = self.batches.take(call.end)
        times = times_of(call, fetches)
        ready = call.end if self._compiled else call.seen
        if "ready" not in self.placed:
            ready = None
        return StepRow(
            0,
            call.epoch,
            times.begin,
            times.data,
            ready,
            ready,
            call.end,
            1,
            samples_of(fetches),
            call.clock_begin,
        )


def _last_of(gradients: GradientClock) -> Callable[[Any], Optional[int]]:
    """What takes down of a call, as ``timed`` wants it, when its last gradient was there."""

    def saw(_: Any) -> Optional[int]:
        last = gradients.last
        if last is None or gradients.on_gradient is None:
            gradients.forget()
        else:
            # All that there is to forget of a backward pass that went as it should.
            gradients.last = None
        return last

    return saw

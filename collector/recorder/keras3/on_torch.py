"""Keras on torch: batches come before the train function, and a hook sees every gradient."""

from __future__ import annotations

from typing import Any, Optional

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
        # Whether a call went by without a gradient that is watched.
        self._missed = False
        # When the last gradient was there as it was looked at before.
        self._looked_at: Optional[int] = None
        self.placed = ("data",)
        self.reason = self._why_not(stages, single)
        if self.reason is None:
            self.placed = ("data", "ready", "reduced")
            self.ready = WHOLE_STEP if self._compiled else None
        if self.reason is None and not self._compiled:
            self.last_of = self._gradients

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
        if self.last_of is not None:
            self._gradients.hook(self._parameters)
            self._gradients.watch_backwards()

    def remove(self) -> None:
        super().remove()
        self._gradients.remove()

    def call_ended(self) -> None:
        super().call_ended()
        if self.last_of is None:
            return
        last = self._gradients.last
        if self._missed or last == self._looked_at or self._gradients.on_gradient is None:
            self._look_anew()
        self._looked_at = last

    def call_aborted(self, begin: int) -> None:
        super().call_aborted(begin)
        if self.last_of is not None:
            self._look_anew()

    def _look_anew(self) -> None:
        """A backward pass had no end, or not the last gradient that it used to have."""
        self._missed = False
        self._gradients.last = None
        self._gradients.forget()

    def _known(self) -> int:
        return len(self.calls)

    def _turn(self, call: Call) -> StepRow:
        assert call.end is not None
        fetches = self.batches.take(call.end)
        times = times_of(call, fetches)
        ready = self._ready(call) if "ready" in self.placed else None
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

    def _ready(self, call: Call) -> Optional[int]:
        if self._compiled:
            return call.end
        if call.seen is not None and call.seen >= call.begin:
            return int(call.seen)
        # The training thread is to look after that around its next call.
        self._missed = True
        self.calls.attend(to_all=True)
        return None

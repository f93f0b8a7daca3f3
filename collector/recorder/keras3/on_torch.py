"""Keras on torch: batches are fetched before the train function, and hooks time the gradients."""

from __future__ import annotations

from typing import Any, Optional

from ..hangs import Position
from ..job.job_facts import SWITCHED_OFF, WHOLE_STEP
from ..keras_common.finished_calls import Call
from ..pytorch.batches import READER as LOADERS
from ..pytorch.gradient_timestamps import GradientClock
from ..pytorch.pytorch_facts import device_types
from ..step_log.line_format import StepRow
from .stages import FetchedInPython, KerasFit, reader_of


class TorchStages(FetchedInPython):
    """Stages where torch computes synchronously."""

    reader = reader_of(LOADERS.memory)._replace(random_states=LOADERS.random_states)

    def __init__(self, fit: KerasFit) -> None:
        super().__init__(fit)
        self._parameters = [variable.value for variable in fit.model.trainable_variables]
        self._gradients = GradientClock()
        self._compiled = (
            bool(getattr(fit.model, "jit_compile", False)) and not fit.model.run_eagerly
        )
        # Whether a call ended without a watched gradient.
        self._missed = False
        # The time of the last gradient at the previous check.
        self._checked_last: Optional[int] = None
        self.placed = ("data",)
        self.reason = self._why_not(fit)
        if self.reason is None:
            self.placed = ("data", "ready", "reduced")
            self.ready = WHOLE_STEP if self._compiled else None
        if self.reason is None and not self._compiled:
            self.last_of = self._gradients

    def _why_not(self, fit: KerasFit) -> Optional[str]:
        if not fit.wanted:
            return SWITCHED_OFF
        for kind in device_types(self._parameters):
            if kind != "cpu":
                return "on %s gradients are ready later than the host can see" % kind.upper()
        if not fit.single:
            return "nothing shows when the gradients of several ranks are reduced"
        return None

    def install(self, epoch_iterator: Any) -> None:
        super().install(epoch_iterator)
        if self.last_of is not None:
            self._gradients.hook(self._parameters)
            self._gradients.watch_backwards()

    def remove(self) -> None:
        super().remove()
        self._gradients.remove()

    def position(self, begin: int) -> Position:
        ready = self._gradients.last if self._gradients.is_complete else None
        return Position(begin, begin, ready, ready)

    def check(self) -> None:
        super().check()
        if self.last_of is None:
            return
        last = self._gradients.last
        if self._missed or last == self._checked_last or self._gradients.on_gradient is None:
            self._watch_all_again()
        self._checked_last = last

    def abort(self, begin: int) -> None:
        super().abort(begin)
        if self.last_of is not None:
            self._watch_all_again()

    def _watch_all_again(self) -> None:
        """Watch all gradients again: a backward pass had no end, or another last gradient."""
        self._missed = False
        self._gradients.last = None
        self._gradients.forget()

    def _iteration(self, call: Call) -> StepRow:
        ready = self._ready(call) if "ready" in self.placed else None
        return super()._iteration(call)._replace(ready=ready, reduced=ready)

    def _ready(self, call: Call) -> Optional[int]:
        if self._compiled:
            return call.end
        if call.seen is not None and call.seen >= call.begin:
            return int(call.seen)
        # The training thread checks it around its next call.
        self._missed = True
        self.calls.schedule_check(every_call=True)
        return None

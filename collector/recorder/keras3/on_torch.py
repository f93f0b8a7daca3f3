"""Keras on torch: batches come before the train function, and a hook sees every gradient."""

from __future__ import annotations

from collections import deque
from typing import Any, Callable, Deque, List, Optional, Tuple

from ..format import StepRow
from ..pytorch.facts import device_types
from ..pytorch.gradients import GradientClock
from ..tf_keras.calls import MOST_WAITING, EndedCalls
from ..tf_keras.steps import Call
from .batches import BatchClock, Fetch
from .stages import WHOLE_STEP, Emit, FetchedInPython
from .steps import Steps, samples_of, times_of

#: What was seen of a call that waits to become a row, besides its times: its batches, and when the last
#: gradient was there.
Seen = Tuple[List[Fetch], Optional[int]]


class TorchStages(FetchedInPython):
    """Stages where torch computes, and the host with it."""

    def __init__(
        self, calls: EndedCalls, model: Any, stages: bool, single: bool, steps: Steps, emit: Emit
    ) -> None:
        super().__init__(calls, steps, emit)
        self._parameters = [variable.value for variable in model.trainable_variables]
        self._gradients = GradientClock()
        self._compiled = bool(getattr(model, "jit_compile", False)) and not model.run_eagerly
        self._seen: Deque[Seen] = deque()
        self.saw = _seeing(self.batches, self._gradients, self._seen, self.drain)
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
        return len(self._seen)

    def _turn(self, call: Call) -> StepRow:
        assert call.end is not None
        fetches, last_gradient = self._seen.popleft()
        times = times_of(call, fetches)
        ready = call.end if self._compiled else last_gradient
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


def _seeing(
    batches: BatchClock, gradients: GradientClock, seen: Deque[Seen], drain: Callable[[], None]
) -> Callable[[Any], int]:
    """What takes down a call, as ``timed`` wants it: with all that it needs in its closure."""

    def saw(_: Any) -> int:
        fetches, own_ns, last = batches.fetches, batches.own_ns, gradients.last
        batches.fetches, batches.own_ns = [], 0
        seen.append((fetches, last))
        if last is None or gradients.on_gradient is None:
            gradients.forget()
        else:
            # All that there is to forget of a backward pass that went as it should.
            gradients.last = None
        if len(seen) >= MOST_WAITING:
            drain()
        return own_ns

    return saw

"""Keras on JAX: the step is one compiled function that runs asynchronously.

Only its outputs show when it is done. A thread waits for them, so that the host still runs ahead of the
device. The host's work meanwhile costs nothing: a step starts when the previous step is done. With
``stages=False`` no thread waits, and steps have the host's times.
"""

from __future__ import annotations

from typing import Any, Optional

from ..jax.jax_recording import memory_of
from ..jax.jax_results import ResultTimes
from ..job.job_facts import SWITCHED_OFF, WHOLE_STEP
from ..keras_common.finished_calls import Call
from ..step_log.line_format import StepRow
from .stages import FetchedInPython, KerasFit, reader_of


class JaxStages(FetchedInPython):
    """Stages where JAX computes."""

    reader = reader_of(memory_of)

    def __init__(self, fit: KerasFit) -> None:
        super().__init__(fit)
        self._done_before = 0
        # For calls that wait to become rows: when their outputs were ready, which may come later than
        # the call's end.
        self._times = ResultTimes()
        self._waits = fit.wanted
        if fit.wanted:
            self.saw = self._saw
        self.placed = ("data",)
        self.reason = self._why_not(fit)
        if self.reason is None:
            self.placed, self.ready = ("data", "ready", "reduced"), WHOLE_STEP
        elif self._steps_per_call != 1:
            self.placed = ()

    def _why_not(self, fit: KerasFit) -> Optional[str]:
        if not fit.wanted:
            return SWITCHED_OFF
        if self._steps_per_call != 1:
            return (
                "steps_per_execution=%d: only the start and the end of a call of several steps are seen"
                % self._steps_per_call
            )
        if not fit.single:
            return "the compiled step reduces its gradients where no timestamp can be taken"
        return None

    def install(self, epoch_iterator: Any) -> None:
        super().install(epoch_iterator)
        if self._waits:
            self._times.start()

    def remove(self) -> None:
        super().remove()
        self._times.stop()

    def _saw(self, outputs: Any) -> None:
        # The first output is the logs; the state after it goes into the next step.
        logs = outputs[0] if type(outputs) is tuple and outputs else outputs
        self._times.add(_one_of(logs))

    def settle(self) -> None:
        self._times.settle()
        super().settle()

    def _known(self) -> int:
        # The outputs may be ready before the call is in the queue.
        waiting = super()._known()
        return min(len(self._times.done), waiting) if self._waits else waiting

    def _iteration(self, call: Call) -> StepRow:
        iteration = super()._iteration(call)
        return self._row(iteration, self._times.done.popleft() if self._waits else None)

    def _row(self, iteration: StepRow, done: Optional[int]) -> StepRow:
        begin = max(iteration.begin, self._done_before)
        data = None if iteration.data is None else max(iteration.data, begin)
        # Without a time, the end of the call counts.
        done = max(iteration.end if done is None else done, data or begin)
        self._done_before = done
        ready = done if "ready" in self.placed else None
        return iteration._replace(
            begin=begin, data=data, ready=ready, reduced=ready, end=max(iteration.end, done)
        )


def _one_of(logs: Any) -> Any:
    """Return one of the values that the step computes; all of them are ready at once."""
    # A copy: training may add values meanwhile.
    values = list(logs.values()) if isinstance(logs, dict) else [logs]
    return next((value for value in values if hasattr(value, "block_until_ready")), None)

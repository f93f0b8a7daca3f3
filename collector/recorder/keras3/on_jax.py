"""Keras on JAX: the step is one compiled function, which computes while the host goes on.

Only its outputs tell when it is done. A thread waits for them, so that the host runs ahead as it does
without a recorder; what it does meanwhile costs nothing, and a step begins when the one before is done.
With ``stages=False`` no thread waits, and a step is what the host sees of it.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from time import monotonic_ns
from typing import Any, Deque, Optional

from ..format import StepRow
from ..tf_keras.calls import EndedCalls
from ..tf_keras.steps import Call
from .stages import WHOLE_STEP, Emit, FetchedInPython
from .steps import Steps, samples_of, times_of

# A device that takes longer for the last steps must not hold an interval, or the end of training.
_PATIENCE_NS = 5_000_000_000
_PAUSE_SECONDS = 0.001

# Comes after the last of the outputs.
_NO_MORE = object()


class JaxStages(FetchedInPython):
    """Stages where JAX computes."""

    def __init__(
        self, calls: EndedCalls, model: Any, stages: bool, single: bool, steps: Steps, emit: Emit
    ) -> None:
        super().__init__(calls, model, steps, emit)
        self._steps_per_call = int(model.steps_per_execution)
        self._done_before = 0
        # Of calls that have ended and wait to become rows: when their outputs were there, which may come
        # later. None where a call has no outputs.
        self._done: Deque[Optional[int]] = deque()
        self._ended = self._told = 0
        self._waiting: "queue.SimpleQueue[Any]" = queue.SimpleQueue()
        self._error: Optional[Exception] = None
        self._thread = threading.Thread(
            target=self._wait_for_outputs, name="stallscope-jax", daemon=True
        )
        self._waits = stages
        if stages:
            self.saw = self._see
        self.placed = ("data",)
        self.reason = self._why_not(stages, single)
        if self.reason is None:
            self.placed, self.ready = ("data", "ready", "reduced"), WHOLE_STEP
        elif self._steps_per_call != 1:
            self.placed = ()

    def _why_not(self, stages: bool, single: bool) -> Optional[str]:
        if not stages:
            return "switched off with stages=False"
        if self._steps_per_call != 1:
            return (
                "steps_per_execution=%d: of a call of several steps, only its begin and end are seen"
                % self._steps_per_call
            )
        if not single:
            return "the compiled step reduces its gradients where nobody can see it"
        return None

    def install(self, epoch_iterator: Any) -> None:
        super().install(epoch_iterator)
        if self._waits:
            self._thread.start()

    def remove(self) -> None:
        super().remove()
        self._waiting.put(_NO_MORE)

    def _see(self, outputs: Any) -> None:
        # The first of the outputs are the logs; the state after them is given to the next step.
        logs = outputs[0] if type(outputs) is tuple and outputs else outputs
        if self._told == self._ended and _is_there(logs):
            # No thread has to wake up for that.
            self._done.append(None)
            self._told += 1
        else:
            self._waiting.put(logs)
        self._ended += 1
        if self._error is not None:
            raise self._error

    def settle(self) -> None:
        deadline = monotonic_ns() + _PATIENCE_NS
        while self._told < self._ended and monotonic_ns() < deadline:
            time.sleep(_PAUSE_SECONDS)
        super().settle()

    def _wait_for_outputs(self) -> None:
        while True:
            logs = self._waiting.get()
            if logs is _NO_MORE:
                return
            done = None
            try:
                output = _one_of(logs)
                if output is not None:
                    output.block_until_ready()
                    done = monotonic_ns()
            except Exception as error:  # told to the training thread, which ends the recording
                self._error = error
            self._done.append(done)
            self._told += 1

    def _known(self) -> int:
        if not self._waits:
            return len(self.calls)
        # The outputs may be there before the call is among those that wait.
        return min(len(self._done), len(self.calls))

    def _turn(self, call: Call) -> StepRow:
        turn = self._seen_by_host(call)
        return self._row(turn, self._done.popleft() if self._waits else None)

    def _seen_by_host(self, call: Call) -> StepRow:
        assert call.end is not None
        fetches = self.batches.take(call.end)
        times = times_of(call, fetches)
        return StepRow(
            0,
            call.epoch,
            times.begin,
            times.data if "data" in self.placed else None,
            None,
            None,
            call.end,
            max(1, len(fetches)) if self._steps_per_call != 1 else 1,
            samples_of(fetches),
            call.clock_begin,
        )

    def _row(self, turn: StepRow, done: Optional[int]) -> StepRow:
        begin = max(turn.begin, self._done_before)
        data = None if turn.data is None else max(turn.data, begin)
        # Values that are there already were so when the call ended.
        done = max(turn.end if done is None else done, data or begin)
        self._done_before = done
        ready = done if "ready" in self.placed else None
        return turn._replace(
            begin=begin, data=data, ready=ready, reduced=ready, end=max(turn.end, done)
        )


def _is_there(logs: Any) -> bool:
    """Whether the step has been computed already."""
    output = _one_of(logs)
    # Old versions cannot be asked.
    asked = getattr(output, "is_ready", None)
    return asked is not None and bool(asked())


def _one_of(logs: Any) -> Any:
    """One of the values that the step has computed; all of them are there at once."""
    # A copy, as training may put others in.
    values = list(logs.values()) if isinstance(logs, dict) else [logs]
    return next((value for value in values if hasattr(value, "block_until_ready")), None)

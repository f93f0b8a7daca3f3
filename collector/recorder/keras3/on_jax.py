"""Keras on JAX: the step is one compiled function, which computes while the host goes on.

Only its outputs tell when it is done. A thread waits for them, so that the host runs ahead as it does
without a recorder; what it does meanwhile costs nothing, and a step begins when the one before is done.
"""

from __future__ import annotations

import queue
import threading
from time import monotonic_ns
from typing import Any, List, Optional, Tuple

from ..format import StepRow
from ..tf_keras.calls import EndedCalls
from ..tf_keras.steps import Call
from .batches import Fetch
from .stages import WHOLE_STEP, Emit, FetchedInPython
from .steps import Steps, samples_of, times_of

# A device that takes longer for the last steps must not hold an interval, or the end of training.
_PATIENCE_SECONDS = 5.0


class JaxStages(FetchedInPython):
    """Stages where JAX computes."""

    def __init__(
        self, calls: EndedCalls, model: Any, stages: bool, single: bool, steps: Steps, emit: Emit
    ) -> None:
        super().__init__(calls)
        self._steps_per_call = int(model.steps_per_execution)
        self._steps = steps
        self._emit = emit
        self._done_before = 0
        # Of calls that have ended: their batches, and one of their outputs.
        self._waiting: "queue.SimpleQueue[Optional[Tuple[List[Fetch], Any]]]" = queue.SimpleQueue()
        self._idle = threading.Condition()
        self._ended = self._emitted = 0
        self._error: Optional[Exception] = None
        self._thread = threading.Thread(
            target=self._wait_for_outputs, name="stallscope-jax", daemon=True
        )
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
        self._thread.start()

    def remove(self) -> None:
        super().remove()
        self._waiting.put(None)

    def saw(self, outputs: Any) -> int:
        batches = self.batches
        fetches, own_ns = batches.fetches, batches.own_ns
        batches.fetches, batches.own_ns = [], 0
        self._ended += 1
        self._waiting.put((fetches, _one_of(outputs)))
        if self._error is not None:
            raise self._error
        return own_ns

    def settle(self) -> None:
        with self._idle:
            self._idle.wait_for(lambda: self._emitted >= self._ended, timeout=_PATIENCE_SECONDS)

    def _wait_for_outputs(self) -> None:
        while True:
            waiting = self._waiting.get()
            if waiting is None:
                return
            fetches, output = waiting
            try:
                if output is not None:
                    output.block_until_ready()
                done = monotonic_ns()
                [call] = self.calls.take(1)
                turn = self._turn(call, fetches)
                self._emit(self._steps.rows(self._row(turn, done, output is not None)))
            except Exception as error:  # told to the training thread, which ends the recording
                self._error = error
            with self._idle:
                self._emitted += 1
                self._idle.notify_all()

    def _turn(self, call: Call, fetches: List[Fetch]) -> StepRow:
        """What the host has seen of a call."""
        assert call.end is not None
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

    def _row(self, turn: StepRow, done: int, known: bool) -> StepRow:
        begin = max(turn.begin, self._done_before)
        data = None if turn.data is None else max(turn.data, begin)
        # Values that are there already were so when the call ended.
        done = max(done if known else turn.end, data or begin)
        self._done_before = done
        ready = done if "ready" in self.placed else None
        return turn._replace(
            begin=begin, data=data, ready=ready, reduced=ready, end=max(turn.end, done)
        )


def _one_of(outputs: Any) -> Any:
    """One of the values that the step has computed; all of them are there at once.

    The first of the outputs are the logs; the state behind them is given to the next step.
    """
    logs = outputs[0] if isinstance(outputs, tuple) and outputs else outputs
    values = logs.values() if isinstance(logs, dict) else [logs]
    return next((value for value in values if hasattr(value, "block_until_ready")), None)

"""Make rows of finished calls of TensorFlow's train function."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Callable, List, Optional

from ..guards import yield_to_training
from ..keras_common.finished_calls import (
    MOST_WAITING,
    Call,
    CallAssembler,
    FinishedCalls,
    GraphStep,
    graph_step,
)
from ..step_log.line_format import StepRow, TokensRow

if TYPE_CHECKING:
    from .timestamp_ring import TimestampRing


class StepStream:
    """Makes rows of finished calls, on the flushing thread or on the training thread.

    The lock guards taking calls, the ring, the assembler and the order of the rows, which go to
    ``emit``, and of the numbers of tokens, which go to ``emit_counted``.

    No rows come before ``settle``: the number of the first step is known only then.
    """

    def __init__(
        self,
        calls: FinishedCalls,
        ring: Optional["TimestampRing"],
        assembler: CallAssembler,
        several_per_call: bool,
        emit: Callable[[List[StepRow]], None],
        emit_counted: Callable[[TokensRow], None],
    ) -> None:
        self._calls = calls
        self._ring = ring
        self._assembler = assembler
        self._several_per_call = several_per_call
        self._emit_rows = emit
        self._emit_counted = emit_counted
        #: Whether the number of the first step is known.
        self.settled = False
        self._checked = False
        # Steps taken from the ring, and steps that the first call ran.
        self._taken = self._ran_train_step = 0
        self._lock = threading.Lock()
        #: Why timestamps turned out to be unusable; None while they are usable.
        self.trouble: Optional[str] = None

    @property
    def has_timestamps(self) -> bool:
        return self._ring is not None

    def next_step(self) -> int:
        """Return the number of the step that the next call belongs to; only called between calls."""
        self.drain(between_calls=True)
        return self._assembler.next_step

    def check(self) -> None:
        """Check after a call, before the next one starts."""
        if not self._checked:
            self._checked = True
            self._check_first()
        if self.settled and (self._several_per_call or len(self._calls) >= MOST_WAITING):
            self.drain(between_calls=True)

    def abort(self, begin: int) -> None:
        """Handle a call that an exception ended, usually the end of the data; steps may have run."""
        self.settled = True
        self.drain()
        with self._lock:
            call = self._calls.call_aborted(begin)
            if self._ring is not None:
                self._emit(self._assembler.graph_rows(call, self._ring.take()))

    def settle(
        self,
        counted_before: int,
        counted: int,
        passes_per_step: int,
        renumber: Callable[[int], None],
    ) -> None:
        """Decide the number of the first step; call ``renumber`` if the expected number was wrong.

        Where only rank 0 loaded a checkpoint, the other ranks get its count with the model's
        broadcast, after the first batch. ``counted_before`` and ``counted`` are the optimizer's
        counts of passes before the first call and now.
        """
        with self._lock:
            if self.settled:
                return
            self.settled = True
            ran = max(self._ran_train_step, self._calls.steps_waiting)
            if not counted_before <= counted <= counted_before + ran:
                self._assembler.next_step = max(0, counted - ran) // passes_per_step
                renumber(self._assembler.next_step)

    def drain(self, between_calls: bool = False) -> None:
        """Make rows of finished calls; ``between_calls``: no call is running."""
        with self._lock:
            calls = self._calls.take() if self.settled else []
            if calls:
                for call in calls:
                    self._calls.count(call.own_ns)
                self._emit(self._rows(calls, in_flight=0 if between_calls else 1))

    def _emit(self, rows: List[StepRow]) -> None:
        self._emit_rows(rows)
        for counted in self._assembler.take_counted():
            self._emit_counted(counted)

    def _rows(self, calls: List[Call], in_flight: int) -> List[StepRow]:
        if self._ring is None:
            return self._assembler.host_rows(calls)
        if self._several_per_call:
            # Drained after every call, so all steps since then belong to that call.
            assert len(calls) == 1
            return self._assembler.graph_rows(calls[0], self._ring.take())
        steps = self._steps_of(self._ring, calls, in_flight)
        if steps is None:
            self._give_up("calls of the train function ran train_step more or less than once")
            return self._assembler.host_rows(calls)
        rows: List[StepRow] = []
        for count, (call, step) in enumerate(zip(calls, steps), 1):
            rows += self._assembler.graph_rows(call, [step])
            yield_to_training(count)
        return rows

    def _steps_of(
        self, ring: "TimestampRing", calls: List[Call], in_flight: int
    ) -> Optional[List[GraphStep]]:
        """Return one graph step for every call; None where calls ran more or fewer."""
        count = sum(call.seen is None for call in calls)
        written = ring.take(count)
        self._taken += len(written)
        # On busy cores, more calls may have started and ended since these were taken.
        if len(written) < count or ring.left > in_flight + len(self._calls):
            return None
        following = iter(written)
        return [
            next(following) if call.seen is None else graph_step(call.seen.numpy().tolist())
            for call in calls
        ]

    def _check_first(self) -> None:
        """Check that the train function calls train_step once, as Keras' own does."""
        with self._lock:
            if self._ring is not None and self._ring.handed_out:
                # Only Keras' own train function returns them.
                self._ran_train_step = 1
            elif self._ring is not None:
                # The flushing thread may have taken the call already.
                started = self._ran_train_step = self._ring.count_waiting() + self._taken
                if started == 0 or (started != 1 and not self._several_per_call):
                    self._give_up(
                        "the first call of the train function ran train_step %d times" % started
                    )

    def _give_up(self, reason: str) -> None:
        """Use only the host's times from here on: timestamps cannot be matched to calls."""
        self._ring = None
        self.trouble = reason

"""Calls of the train function on their way to rows."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Callable, Deque, List, Optional

from ..format import StepRow
from ..guards import let_others_run
from .steps import Call, StepAssembler

if TYPE_CHECKING:
    from .ring import StampRing

#: So many calls do not wait for the flushing thread.
MOST_PENDING = 2048


class StepStream:
    """Calls come in on the training thread; that one or the flushing thread makes rows of them.

    The lock guards the ring, the assembler and the order of the rows, which go to ``emit``.

    Nothing comes out before ``settle``: the number of the first step is only known then.
    """

    def __init__(
        self,
        ring: Optional["StampRing"],
        assembler: StepAssembler,
        several_per_call: bool,
        emit: Callable[[List[StepRow]], None],
    ) -> None:
        self._ring = ring
        self._assembler = assembler
        self._several_per_call = several_per_call
        self._emit = emit
        self._calls: Deque[Call] = deque()
        self._settled = False
        self._ran_train_step = 0
        self._lock = threading.Lock()
        #: Calls that have ended.
        self.calls_seen = 0
        #: Why stamps turned out to be of no use; None as long as they are.
        self.trouble: Optional[str] = None

    @property
    def settled(self) -> bool:
        return self._settled

    @property
    def stamped(self) -> bool:
        return self._ring is not None

    def add(self, call: Call) -> None:
        """A call has ended."""
        self.calls_seen += 1
        if self.calls_seen == 1:
            self._check_first()
        self._calls.append(call)
        if self._settled and (self._several_per_call or len(self._calls) >= MOST_PENDING):
            self.drain(between_calls=True)

    def abort(self, call: Call) -> None:
        """A call was ended by an exception, mostly because the data ended; inner steps may have run."""
        self._settled = True
        self.drain()
        with self._lock:
            if self._ring is not None:
                self._emit(self._assembler.stamped_rows(call, self._ring.take()))

    def settle(
        self,
        counted_before: int,
        counted: int,
        passes_per_step: int,
        renumber: Callable[[int], None],
    ) -> None:
        """Decide the number of the first step, and ``renumber`` where it is not what was thought.

        Where only rank 0 loaded a checkpoint, the others learn its count when the model is
        broadcast, after the first batch. ``counted_before`` and ``counted`` are the passes that the
        optimizer had counted before the first call and has counted now.
        """
        with self._lock:
            if self._settled:
                return
            self._settled = True
            ran = self._turns_so_far()
            if not counted_before <= counted <= counted_before + ran:
                self._assembler.next_step = max(0, counted - ran) // passes_per_step
                renumber(self._assembler.next_step)

    def drain(self, between_calls: bool = False) -> None:
        """Turn the calls that have ended into rows; ``between_calls``: none is running."""
        with self._lock:
            if self._settled and self._calls:
                calls = [self._calls.popleft() for _ in range(len(self._calls))]
                self._emit(self._rows(calls, in_flight=0 if between_calls else 1))

    def _rows(self, calls: List[Call], in_flight: int) -> List[StepRow]:
        if self._ring is None:
            return self._assembler.host_rows(calls)
        if self._several_per_call:
            # Drained after every call, so all steps since are that call's.
            assert len(calls) == 1
            return self._assembler.stamped_rows(calls[0], self._ring.take())
        steps = self._ring.take(len(calls))
        # On busy cores, calls may have begun and ended since these were taken.
        if len(steps) < len(calls) or self._ring.left > in_flight + len(self._calls):
            self._give_up("calls of the train function ran train_step more or less than once")
            return self._assembler.host_rows(calls)
        rows: List[StepRow] = []
        for count, (call, step) in enumerate(zip(calls, steps), 1):
            rows += self._assembler.stamped_rows(call, [step])
            let_others_run(count)
        return rows

    def _check_first(self) -> None:
        """Whether the train function goes through train_step as Keras' own does."""
        with self._lock:
            if self._ring is not None:
                begun = self._ran_train_step = self._ring.look()
                if begun == 0 or (begun != 1 and not self._several_per_call):
                    self._give_up(
                        "the first call of the train function ran train_step %d times" % begun
                    )

    def _give_up(self, reason: str) -> None:
        """Stamps cannot be told to calls: from here on the host's times must do."""
        self._ring = None
        self.trouble = reason

    def _turns_so_far(self) -> int:
        return max(self._ran_train_step, sum(call.steps for call in self._calls))

"""Calls of the train function on their way to rows."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Callable, List, Optional

from ..format import StepRow
from ..guards import let_others_run
from .calls import MOST_WAITING
from .steps import Call, GraphStep, StepAssembler, graph_step

if TYPE_CHECKING:
    from .calls import EndedCalls
    from .ring import StampRing


class StepStream:
    """Makes rows of calls that have ended; on the flushing thread or on the training thread.

    The lock guards the calls that are taken, the ring, the assembler and the order of the rows, which go
    to ``emit``.

    Nothing comes out before ``settle``: the number of the first step is only known then.
    """

    def __init__(
        self,
        calls: "EndedCalls",
        ring: Optional["StampRing"],
        assembler: StepAssembler,
        several_per_call: bool,
        emit: Callable[[List[StepRow]], None],
    ) -> None:
        self._calls = calls
        self._ring = ring
        self._assembler = assembler
        self._several_per_call = several_per_call
        self._emit = emit
        self._settled = self._checked = False
        # Steps that were taken from the ring, and those that the first call ran.
        self._taken = self._ran_train_step = 0
        self._lock = threading.Lock()
        #: Why timestamps turned out to be of no use; None as long as they are.
        self.trouble: Optional[str] = None

    @property
    def settled(self) -> bool:
        return self._settled

    @property
    def stamped(self) -> bool:
        return self._ring is not None

    def look(self) -> None:
        """A call has ended, and no other one has begun."""
        if not self._checked:
            self._checked = True
            self._check_first()
        if self._settled and (self._several_per_call or len(self._calls) >= MOST_WAITING):
            self.drain(between_calls=True)

    def abort(self, begin: int) -> None:
        """A call was ended by an exception, mostly because the data ended; inner steps may have run."""
        self._settled = True
        self.drain()
        with self._lock:
            call = self._calls.aborted(begin)
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
            calls = self._calls.take() if self._settled else []
            if calls:
                for call in calls:
                    self._calls.count(call.own_ns)
                self._emit(self._rows(calls, in_flight=0 if between_calls else 1))

    def _rows(self, calls: List[Call], in_flight: int) -> List[StepRow]:
        if self._ring is None:
            return self._assembler.host_rows(calls)
        if self._several_per_call:
            # Drained after every call, so all steps since are that call's.
            assert len(calls) == 1
            return self._assembler.stamped_rows(calls[0], self._ring.take())
        steps = self._steps_of(self._ring, calls, in_flight)
        if steps is None:
            self._give_up("calls of the train function ran train_step more or less than once")
            return self._assembler.host_rows(calls)
        rows: List[StepRow] = []
        for count, (call, step) in enumerate(zip(calls, steps), 1):
            rows += self._assembler.stamped_rows(call, [step])
            let_others_run(count)
        return rows

    def _steps_of(
        self, ring: "StampRing", calls: List[Call], in_flight: int
    ) -> Optional[List[GraphStep]]:
        """One for every call; None where they ran more or fewer."""
        count = sum(call.seen is None for call in calls)
        written = ring.take(count)
        self._taken += len(written)
        # On busy cores, calls may have begun and ended since these were taken.
        if len(written) < count or ring.left > in_flight + len(self._calls):
            return None
        following = iter(written)
        return [
            next(following) if call.seen is None else graph_step(call.seen.numpy().tolist())
            for call in calls
        ]

    def _check_first(self) -> None:
        """Whether the train function goes through train_step as Keras' own does."""
        with self._lock:
            if self._ring is not None and self._ring.handed_out:
                # Of Keras' own train function only.
                self._ran_train_step = 1
            elif self._ring is not None:
                # The flushing thread may have had the call already.
                begun = self._ran_train_step = self._ring.look() + self._taken
                if begun == 0 or (begun != 1 and not self._several_per_call):
                    self._give_up(
                        "the first call of the train function ran train_step %d times" % begun
                    )

    def _give_up(self, reason: str) -> None:
        """Timestamps cannot be told to calls: from here on the host's times must do."""
        self._ring = None
        self.trouble = reason

    def _turns_so_far(self) -> int:
        return max(self._ran_train_step, self._calls.steps_waiting)

"""Turns of the loop on their way to rows, which wait for what the engine computes."""

from __future__ import annotations

import threading
import time
from time import monotonic_ns
from typing import Any, Callable, Deque, List, Optional, Tuple

from ..clock import read_clocks
from ..format import StepRow
from ..guards import let_others_run
from ..pytorch.steps import Reduction, StepAssembler, Turn
from .probes import Answer

# An engine that takes longer for the last steps must not hold an interval, or the end of training.
_PATIENCE_NS = 5_000_000_000
_PAUSE_SECONDS = 0.001

Emit = Callable[[List[StepRow]], None]

#: A turn's epoch, when it began and had its batch, how many samples that has, and the nanoseconds that
#: recording the turn took; then of every reduction in it when the gradients are ready, and when they are
#: reduced, where the engine was asked. A bare list, and a bare tuple with when it ended: what has names
#: takes training ten times as long to make.
BegunTurn = List[Any]
EndedTurn = Tuple[BegunTurn, int]
OWN_NS, REDUCTIONS = 4, 5


class TurnStream:
    """Turns come in by ``waiting``, from the training thread, in order; rows go out in whatever thread
    drains, in the same order. ``costs`` takes the nanoseconds that recording a turn took, ``emit`` the
    rows that it makes.

    The host may run ahead of the engine. What it does meanwhile costs nothing: a step begins, at the
    earliest, when the one before is reduced.
    """

    def __init__(
        self,
        waiting: Deque[EndedTurn],
        single: bool,
        costs: Callable[[int], None],
        emit: Emit,
    ) -> None:
        self._assembler = StepAssembler(True, single)
        self._costs = costs
        self._emit = emit
        self._waiting = waiting
        self._drains = threading.Lock()
        self._count = 0
        self._reduced_before = 0
        self._gave_up = False

    def drain(self) -> None:
        """Make rows of the turns that the engine is through with."""
        with self._drains:
            clock, count = read_clocks()[1], 0
            while self._waiting and self._is_known(self._waiting[0]):
                self._ended(self._waiting.popleft(), clock)
                count += 1
                let_others_run(count)

    def settle(self) -> None:
        """Wait until rows of all turns that have ended are out."""
        deadline = monotonic_ns() + _PATIENCE_NS
        self.drain()
        while self._waiting and monotonic_ns() < deadline:
            time.sleep(_PAUSE_SECONDS)
            self.drain()

    def close(self) -> bool:
        """Make the last rows; whether reductions were seen, if there were turns at all."""
        self.settle()
        rows = self._assembler.give_up()
        self._emit(rows)
        self._gave_up = self._gave_up or bool(rows)
        return not self._gave_up

    @staticmethod
    def _is_known(ended: EndedTurn) -> bool:
        answers = [answer for reduction in ended[0][REDUCTIONS:] for answer in reduction]
        return all(answer is None or answer.is_there for answer in answers)

    def _ended(self, ended: EndedTurn, clock: int) -> None:
        (epoch, begin, data, samples, own_ns, *asked), end = ended
        turn = Turn(epoch, max(begin, self._reduced_before), clock)
        turn.data = max(data, turn.begin)
        turn.samples = samples
        for ready, reduced in asked:
            self._count += 1
            ready_at = _taken(ready, turn.data)
            reduction = Reduction(self._count, ready_at, _taken(reduced, ready_at or turn.data))
            turn.reduced(reduction)
            self._reduced_before = reduction.reduced or reduction.ready or self._reduced_before
        end = max(end, self._reduced_before, turn.begin)
        self._costs(own_ns)
        self._emit(self._assembler.rows(turn, end))
        if self._assembler.lost_count:
            self._gave_up = True
            self._emit(self._assembler.give_up())


def _taken(answer: Optional[Answer], earliest: int) -> Optional[int]:
    """What was told; a thread of the engine may be late to tell of what came before."""
    return None if answer is None else max(answer.take(), earliest)

"""Turns of the loop on their way to rows, which wait for what the engine computes."""

from __future__ import annotations

import threading
import time
from collections import deque
from time import monotonic_ns
from typing import Callable, Deque, List, Optional, Tuple

from ..format import StepRow
from ..guards import let_others_run
from ..pytorch.steps import Reduction, StepAssembler, Turn
from .probes import GradientProbe

# An engine that takes longer for the last steps must not hold an interval, or the end of training.
_PATIENCE_NS = 5_000_000_000
_PAUSE_SECONDS = 0.001

Emit = Callable[[List[StepRow]], None]


class TurnStream:
    """Reductions and turns come in on the training thread, in order; rows go out in whatever thread
    drains, in the same order.

    The host may run ahead of the engine. What it does meanwhile costs nothing: a step begins, at the
    earliest, when the one before is reduced.
    """

    def __init__(self, single: bool, probe: Optional[GradientProbe], emit: Emit) -> None:
        self._assembler = StepAssembler(True, single)
        self._single = single
        self._probe = probe
        self._emit = emit
        # Of every reduction of the turn that runs, whether the probe was asked around it.
        self._probed: List[bool] = []
        self._waiting: Deque[Tuple[Turn, int, List[bool]]] = deque()
        self._drains = threading.Lock()
        self._count = 0
        self._reduced_before = 0
        self._gave_up = False

    def reduces(self, probed: bool) -> None:
        """A reduction was enqueued, the probe asked in front of it, and behind it unless the rank is a
        single one; otherwise only its turn is known.
        """
        self._probed.append(probed)

    def ends(self, turn: Turn, end: int) -> None:
        probed, self._probed = self._probed, []
        self._waiting.append((turn, end, probed))

    def drain(self) -> None:
        """Make rows of the turns that the engine is through with."""
        with self._drains:
            count = 0
            while self._waiting and self._is_known(self._waiting[0][2]):
                self._ended(*self._waiting.popleft())
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
        if self._probe is not None:
            self._probe.close()
        rows = self._assembler.give_up()
        self._emit(rows)
        self._gave_up = self._gave_up or bool(rows)
        return not self._gave_up

    def _is_known(self, probed: List[bool]) -> bool:
        times = sum(probed) * (1 if self._single else 2)
        return self._probe is None or len(self._probe.times) >= times

    def _ended(self, turn: Turn, end: int, probed: List[bool]) -> None:
        turn.begin = max(turn.begin, self._reduced_before)
        if turn.data is not None:
            turn.data = max(turn.data, turn.begin)
        for one in probed:
            reduction = self._reduction(one)
            turn.reduced(reduction)
            self._reduced_before = reduction.reduced or reduction.ready or self._reduced_before
        end = max(end, self._reduced_before, turn.begin)
        self._emit(self._assembler.rows(turn, end))
        if self._assembler.lost_count:
            self._gave_up = True
            self._emit(self._assembler.give_up())

    def _reduction(self, probed: bool) -> Reduction:
        self._count += 1
        if not probed:
            return Reduction(self._count, None, None)
        assert self._probe is not None
        times = self._probe.times
        ready = times.popleft()
        return Reduction(self._count, ready, None if self._single else times.popleft())

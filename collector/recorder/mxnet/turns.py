"""Turns of the loop on their way to rows: a thread waits for what the engine computes."""

from __future__ import annotations

import queue
import threading
from time import monotonic_ns
from typing import Any, Callable, List, Optional, Tuple, Union

from ..format import StepRow
from ..pytorch.steps import Reduction, StepAssembler, Turn

# An engine that takes longer for the last steps must not hold an interval, or the end of training.
_PATIENCE_SECONDS = 5.0

Emit = Callable[[List[StepRow]], None]
#: Copies in front of a reduction and behind it.
Probes = Tuple[List[Any], List[Any]]
Ended = Tuple[Turn, int]


class TurnStream:
    """Reductions and turns come in on the training thread, in order; rows go out from another one.

    The host may run ahead of the engine. What it does meanwhile costs nothing: a step begins, at the
    earliest, when the one before is reduced.
    """

    def __init__(self, assembler: StepAssembler, emit: Emit) -> None:
        self._assembler = assembler
        self._emit = emit
        self._waiting: "queue.Queue[Union[Probes, Turn, Ended, None]]" = queue.Queue()
        self._reductions: List[Reduction] = []
        self._count = 0
        self._reduced_before = 0
        self._idle = threading.Condition()
        self._pending = 0
        self._gave_up = False
        #: What ended the thread; the training thread looks at it.
        self.error: Optional[Exception] = None
        threading.Thread(target=self._run, name="stallscope-mxnet", daemon=True).start()

    def reduces(self, before: List[Any], after: List[Any]) -> None:
        """A reduction was enqueued, between these copies; without copies only its turn is known."""
        self._put((before, after))

    def ends(self, turn: Turn, end: int) -> None:
        self._put((turn, end))

    def settle(self) -> None:
        """Wait until rows of all turns that have ended are out."""
        with self._idle:
            self._idle.wait_for(lambda: self._pending == 0, timeout=_PATIENCE_SECONDS)

    def close(self) -> bool:
        """End the thread; whether reductions were seen, if there were turns at all."""
        self.settle()
        self._waiting.put(None)
        rows = self._assembler.give_up()
        self._emit(rows)
        self._gave_up = self._gave_up or bool(rows)
        return not self._gave_up

    def _put(self, item: Any) -> None:
        with self._idle:
            self._pending += 1
        self._waiting.put(item)

    def _run(self) -> None:
        while True:
            item = self._waiting.get()
            if item is None:
                return
            try:
                if self.error is None:
                    self._take(item)
            except Exception as error:
                self.error = error
            with self._idle:
                self._pending -= 1
                self._idle.notify_all()

    def _take(self, item: Any) -> None:
        first, second = item
        if isinstance(first, Turn):
            self._ended(first, second)
            return
        self._count += 1
        ready, reduced = _when_done(first), _when_done(second)
        self._reductions.append(Reduction(self._count, ready, reduced))

    def _ended(self, turn: Turn, end: int) -> None:
        reductions, self._reductions = self._reductions, []
        turn.begin = max(turn.begin, self._reduced_before)
        if turn.data is not None:
            turn.data = max(turn.data, turn.begin)
        for reduction in reductions:
            turn.reduced(reduction)
            end = max(end, reduction.reduced or 0)
        self._reduced_before = max(
            [self._reduced_before, *(one.reduced or 0 for one in reductions)]
        )
        self._emit(self._assembler.rows(turn, max(end, turn.begin)))
        if self._assembler.lost_count:
            self._gave_up = True
            self._emit(self._assembler.give_up())


def _when_done(copies: List[Any]) -> Optional[int]:
    for copy in copies:
        copy.wait_to_read()
    return monotonic_ns() if copies else None

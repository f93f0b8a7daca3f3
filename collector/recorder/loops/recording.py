"""Record the loops, epochs and pauses of a training that takes its batches from ``iterate``."""

from __future__ import annotations

import threading
from time import monotonic_ns
from typing import Any, List, Optional

from ..base_recording import BaseRecording
from ..guards import while_running
from ..job.facts import batches_in
from ..options import Options
from ..step_log.format import EPOCH, StepRow


class LoopRecording(BaseRecording):
    """The loops of one training; by default each loop is an epoch.

    No method raises: a failure ends the recording with one warning. Methods do nothing unless the
    recording runs.
    """

    # Slots, not a dict: training has just evicted everything from the CPU's caches.
    __slots__ = (
        "_batch_size",
        "_epoch",
        "_epoch_start",
        "_loop",
        "_samples_given",
        "_thread",
    )

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._loop: Optional[object] = None
        self._epoch = -1
        self._epoch_start: Optional[int] = None
        self._batch_size = self._samples_given = options.batch_size
        self._thread = threading.get_ident()

    @while_running
    def begin_loop(self, loop: object, loader: Any) -> None:
        self._end_iteration_early()
        if self._loop is None:
            assert self._session is not None
            self._session.facts({"batches_per_epoch": batches_in(loader)})
        self._loop = loop

    @while_running
    def end_loop(self, loop: object, ends_epoch: bool = True) -> None:
        """End a loop; Python may close a loop that was left after another one has started."""
        if loop is self._loop:
            self._end_iteration_early()
            if ends_epoch:
                self.end_epoch()

    @while_running
    def begin_epoch(self, number: Optional[int] = None) -> None:
        """Start an epoch; without a number, it is the next one."""
        self.end_epoch()
        self._epoch = self._epoch + 1 if number is None else number
        self._epoch_start = monotonic_ns()

    @while_running
    def end_epoch(self) -> None:
        self._end_iteration_early()
        began, self._epoch_start = self._epoch_start, None
        if began is not None:
            self._interval(EPOCH, began)

    @while_running
    def begin_pause(self, kind: str) -> None:
        """Start a pause, such as validation. A complete step ends before it."""
        self._end_iteration_early()
        assert self._session is not None
        self._session.pause(kind)

    @while_running
    def end_pause(self, kind: str, began: int) -> None:
        self._interval(kind, began)

    def _end_iteration_early(self) -> None:
        """End the iteration where the user left the loop, if it completes a step."""
        raise NotImplementedError

    def _interval(self, kind: str, began: int) -> None:
        """Record an interval that ends now."""
        raise NotImplementedError

    def _emit(self, rows: List[StepRow]) -> None:
        """Number rows and record them; without the user's batch size, the first batch shows it."""
        session = self._session
        assert session is not None
        for row in rows:
            if self._batch_size is None and row.samples:
                self._batch_size = row.samples // row.micro
                session.facts({"batch_size": self._batch_size})
            session.step(row._replace(step=session.next_step))

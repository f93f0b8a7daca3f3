"""Record the loops of a training whose batches pass through ``iterate``: loops, epochs and pauses."""

from __future__ import annotations

import threading
from time import monotonic_ns
from typing import Any, Optional

from .base_recording import BaseRecording
from .facts import batches_in
from .format import EPOCH
from .guards import while_running
from .options import Options


class LoopRecording(BaseRecording):
    """The loops of one training, each of which is an epoch.

    None of its methods raises: a failure ends the recording with one warning. None does anything
    unless the recording runs.
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
    def end_loop(self, loop: object) -> None:
        """End a loop; Python may close a loop that was left after another one has started."""
        if loop is self._loop:
            self.end_epoch()

    @while_running
    def begin_epoch(self) -> None:
        self.end_epoch()
        self._epoch += 1
        self._epoch_start = monotonic_ns()

    @while_running
    def end_epoch(self) -> None:
        self._end_iteration_early()
        began, self._epoch_start = self._epoch_start, None
        if began is not None:
            self._interval(EPOCH, began)

    @while_running
    def begin_pause(self, kind: str) -> None:
        """Start something other than training. A step that is complete ends before it."""
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
        """Record what began then and ends now."""
        raise NotImplementedError

"""Record loops that users write: their epochs and pauses; the base of their ``StepLogger``."""

from __future__ import annotations

import contextlib
import threading
from time import monotonic_ns
from typing import Any, Iterable, Iterator, List, Optional, TypeVar

from .base_recording import BaseRecording
from .guards import while_running
from .input.loader_wrappers import each_of
from .job.job_facts import batches_in
from .options import Options
from .step_log.line_format import CHECKPOINT, EPOCH, VALIDATION, StepRow

Logger = TypeVar("Logger", bound="LoopLogger")


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


# -- The part of ``StepLogger`` that frameworks with hand-written training loops share ------------


class LoopLogger:
    """A context around a training loop; recording starts with its first use."""

    def __init__(self) -> None:
        super().__init__()
        # The framework's recording.
        self._loop: Any = None
        self._closed = False
        # The number of the next recording's first step; None where the framework counts steps.
        self._first_step: Optional[int] = None

    def _new_recording(self) -> Any:
        """Make the recording of this training, without starting it."""
        raise NotImplementedError

    def __enter__(self: Logger) -> Logger:
        self._closed = False
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def close(self) -> None:
        """Write what is left and restore the training; loops continue unrecorded."""
        self._closed = True
        recording, self._loop = self._loop, None
        if recording is not None:
            recording.stop()

    def validation(self) -> "contextlib.AbstractContextManager[None]":
        """Wrap the validation, which is excluded from the steps; on another thread it is beside them."""
        return self._pause(VALIDATION)

    def checkpoint(self) -> "contextlib.AbstractContextManager[None]":
        """Wrap the saving of a checkpoint, which is excluded from the steps."""
        return self._pause(CHECKPOINT)

    @contextlib.contextmanager
    def _pause(self, kind: str) -> Iterator[None]:
        recording = self._started_recording()
        beside = recording.is_beside_training()
        if not beside:
            recording.begin_pause(kind)
        began = monotonic_ns()
        try:
            yield
        finally:
            if beside:
                recording.went_on_beside(kind, began)
            else:
                recording.end_pause(kind, began)

    def _recording_of_loop(self, first_step: Optional[int] = None) -> Any:
        """Return the recording for a new loop.

        A new one where the ranks have changed, or where steps are repeated. ``first_step`` is the number
        of the loop's first step; None where the user does not give it.
        """
        recording = self._loop
        if recording is not None and not recording.continues(first_step):
            recording.stop()
            self._loop = None
        self._first_step = first_step
        return self._started_recording()

    def _started_recording(self) -> Any:
        """Return the recording, started on first use, when ranks and checkpoints are known."""
        if self._loop is None:
            recording = self._new_recording()
            if self._closed:
                # It was not started and does nothing.
                return recording
            self._loop = recording
            recording.start()
        return self._loop


class WatchedLoader:
    """A loader with recorded loops.

    Raises:
        TypeError: if ``first_step``, the number of its first loop's first step, is no number of steps.
    """

    def __init__(
        self,
        log: LoopLogger,
        loader: Iterable[Any],
        first_step: Optional[int] = None,
        probe_input: Optional[int] = None,
    ) -> None:
        if first_step is not None and (not isinstance(first_step, int) or first_step < 0):
            raise TypeError("first_step is a number of steps, not %r" % (first_step,))
        self._log = log
        self._loader = loader
        self._first_step = first_step
        # As in ``Options``, for this loader.
        self._probe_input = probe_input

    def __iter__(self) -> Iterator[Any]:
        recording = self._log._recording_of_loop(self._first_step)
        return self._iterate(recording)

    def _iterate(self, recording: Any) -> Iterator[Any]:
        batches: Iterator[Any] = recording.iterate(self._loader, self._batches())
        return batches

    def _batches(self) -> Iterator[Any]:
        """Return an iterator over the loader; some loaders are their own, and begin again."""
        batches = iter(self._loader)
        return each_of(batches) if batches is self._loader else batches

    def __len__(self) -> int:
        return len(self._loader)  # type: ignore[arg-type]  # raises the loader's own error

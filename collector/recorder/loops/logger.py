"""The part of ``StepLogger`` that frameworks with hand-written training loops share."""

from __future__ import annotations

import contextlib
from time import monotonic_ns
from typing import Any, Iterable, Iterator, Optional, TypeVar

from ..step_log.format import CHECKPOINT, VALIDATION

Logger = TypeVar("Logger", bound="LoopLogger")


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
        """Wrap the validation, which is excluded from the steps."""
        return self._pause(VALIDATION)

    def checkpoint(self) -> "contextlib.AbstractContextManager[None]":
        """Wrap the saving of a checkpoint, which is excluded from the steps."""
        return self._pause(CHECKPOINT)

    @contextlib.contextmanager
    def _pause(self, kind: str) -> Iterator[None]:
        recording = self._started_recording()
        recording.begin_pause(kind)
        began = monotonic_ns()
        try:
            yield
        finally:
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
        self, log: LoopLogger, loader: Iterable[Any], first_step: Optional[int] = None
    ) -> None:
        if first_step is not None and (not isinstance(first_step, int) or first_step < 0):
            raise TypeError("first_step is a number of steps, not %r" % (first_step,))
        self._log = log
        self._loader = loader
        self._first_step = first_step

    def __iter__(self) -> Iterator[Any]:
        recording = self._log._recording_of_loop(self._first_step)
        batches: Iterator[Any] = recording.iterate(self._loader, iter(self._loader))
        return batches

    def __len__(self) -> int:
        return len(self._loader)  # type: ignore[arg-type]  # raises the loader's own error

"""``StepLogger`` of frameworks whose users write the training loop: what it does in all of them."""

from __future__ import annotations

import contextlib
from time import monotonic_ns
from typing import Any, Generic, Iterator, Optional, TypeVar

from .format import CHECKPOINT, VALIDATION

Recording = TypeVar("Recording")
Logger = TypeVar("Logger", bound="LoopLogger[Any]")


class LoopLogger(Generic[Recording]):
    """A context around a training loop, whose recording begins with its first use."""

    def __init__(self) -> None:
        self._recording: Optional[Recording] = None
        self._closed = False

    def _made(self) -> Recording:
        """The recording of this training, not started."""
        raise NotImplementedError

    def __enter__(self: Logger) -> Logger:
        self._closed = False
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def close(self) -> None:
        """Write what is left and leave the training as it was found; loops go on unrecorded."""
        self._closed = True
        recording: Any = self._recording
        self._recording = None
        if recording is not None:
            recording.stop()

    def validation(self) -> "contextlib.AbstractContextManager[None]":
        """Around the validation: it is cut out of the steps."""
        return self._pause(VALIDATION)

    def checkpoint(self) -> "contextlib.AbstractContextManager[None]":
        """Around the saving of a checkpoint: it is cut out of the steps."""
        return self._pause(CHECKPOINT)

    @contextlib.contextmanager
    def _pause(self, kind: str) -> Iterator[None]:
        recording: Any = self._started()
        recording.pause_begins()
        began = monotonic_ns()
        try:
            yield
        finally:
            recording.pause_ends(kind, began)

    def _started(self) -> Recording:
        """The recording: ranks and checkpoints are known by its first use."""
        if self._recording is None:
            recording: Any = self._made()
            if self._closed:
                # It was not started, and does nothing.
                return recording  # type: ignore[no-any-return]
            self._recording = recording
            recording.start()
        return self._recording

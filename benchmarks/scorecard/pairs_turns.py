"""Trainings that alternate in one process: only one of them runs at a time.

Standard library only.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

#: How long a training may take to end after its last turn.
END_SECONDS = 60

#: A training calls it where it may pause; it returns when the training's next turn starts.
Pause = Callable[[], None]


class Training:
    """Runs a training in a separate thread, and only during its turns.

    Args:
        train: the whole training; calls its argument to end a turn.
    """

    def __init__(self, train: Callable[[Pause], None]) -> None:
        self._train = train
        self._begins, self._ends = threading.Semaphore(0), threading.Semaphore(0)
        self._error: BaseException | None = None
        # A failed training must not keep the process alive.
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def take_turn(self) -> None:
        """Run until the training pauses or ends.

        Raises:
            BaseException: whatever the training raises.
        """
        self._begins.release()
        self._ends.acquire()
        if self._error is not None:
            raise self._error

    def finish(self) -> None:
        """Run until the training has ended; it must not pause again.

        Raises:
            BaseException: whatever the training raises.
            RuntimeError: if it pauses.
        """
        self.take_turn()
        self._thread.join(END_SECONDS)
        if self._thread.is_alive():
            raise RuntimeError("a training has not ended after its last turn")

    def _run(self) -> None:
        self._begins.acquire()
        try:
            self._train(self._pause)
        except BaseException as error:
            self._error = error
        self._ends.release()

    def _pause(self) -> None:
        self._ends.release()
        self._begins.acquire()

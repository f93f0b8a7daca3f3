"""Read runs in memory again that are still being recorded, when a user opens one of their pages."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock

from stallscope.errors import StallscopeError
from stallscope.parsers import read
from stallscope.run import Run

from ..run_folder import recording_folder

# A run is read again after a pause of this many times the time that reading and analysing it took:
# viewing its pages uses a small share of the machine, however long the run is.
_PAUSE = 10.0


@dataclass
class _LogState:
    """The state of a run's logs when they were read last. One thread at a time reads them."""

    lock: Lock = field(default_factory=Lock)
    files: Hashable = None
    #: When the logs were read last, and the clock before which they are not read again.
    read_at: datetime | None = None
    not_before: float = 0.0


class Refresher:
    """Reads runs again if their logs have grown.

    Args:
        clock: a monotonic clock in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = Lock()
        self._states: dict[str, _LogState] = {}

    def register(self, key: str, run: Run) -> None:
        """Note that a run was opened while it was being recorded.

        The sizes of its logs are not taken: rows that came after it was read would count as read.
        """
        if recording_folder(run) is not None:
            self._state(key).read_at = datetime.now(UTC)

    def read_at(self, key: str) -> datetime | None:
        """Return when a run that is being recorded was read last; None for all other runs."""
        state = self._states.get(key)
        return None if state is None else state.read_at

    def refreshed(self, key: str, run: Run) -> Run | None:
        """Read a run again; None if its logs have not changed or were read recently."""
        folder = recording_folder(run)
        state = self._state(key)
        if folder is None or self._clock() < state.not_before:
            return None
        # While one thread reads, the others show the previous state.
        if not state.lock.acquire(blocking=False):
            return None
        try:
            files = _files(folder, run)
            if files == state.files:
                return None
            start = self._clock()
            found = _read(run)
            state.files, state.read_at = files, datetime.now(UTC)
            self.add_cost(key, self._clock() - start)
            return found
        finally:
            state.lock.release()

    def add_cost(self, key: str, seconds: float) -> None:
        """Delay the next read by a multiple of the time that reading or analysing a run took."""
        state = self._states.get(key)
        if state is not None:
            state.not_before = max(state.not_before, self._clock()) + _PAUSE * seconds

    def _state(self, key: str) -> _LogState:
        with self._lock:
            return self._states.setdefault(key, _LogState())


def _read(run: Run) -> Run | None:
    try:
        return next((one for one in read(run.source) if one.id == run.id), None)
    except StallscopeError:
        return None  # keep showing the previous state


def _files(folder: Path, run: Run) -> Hashable:
    """Return names and sizes of all files in the folders of a run's logs."""
    found = []
    for log_folder in sorted({(folder / log.path).parent for log in run.logs}):
        try:
            with os.scandir(log_folder) as entries:
                found += [
                    (entry.path, entry.stat().st_size) for entry in entries if entry.is_file()
                ]
        except OSError:
            continue  # deleted; the run's page shows the rest
    return tuple(sorted(found))

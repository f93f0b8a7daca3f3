"""Runs in memory that are still being recorded: read again when a user opens one of their pages."""

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

from ..live import followed_folder

# A run is read again after so many times as long as reading and analysing it took: however long it
# lasts, looking at its pages keeps the machine busy for a small part of the time.
_PAUSE = 10.0


@dataclass
class _Seen:
    """What is known of a run's logs. One thread at a time reads them."""

    lock: Lock = field(default_factory=Lock)
    files: Hashable = None
    #: When it was read last, and the clock from which on it may be read again.
    at: datetime | None = None
    after: float = 0.0


class Renewals:
    """Reads runs again whose logs have grown.

    Args:
        clock: seconds that only go forward.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = Lock()
        self._seen: dict[str, _Seen] = {}

    def first_seen(self, key: str, run: Run) -> None:
        """Take note of a run as it was opened."""
        folder = followed_folder(run)
        if folder is not None:
            self._of(key).files = _files(folder, run)
            self._of(key).at = datetime.now(UTC)

    def read_at(self, key: str) -> datetime | None:
        """When a run that is being recorded was read last; None of all others."""
        seen = self._seen.get(key)
        return None if seen is None else seen.at

    def renewed(self, key: str, run: Run) -> Run | None:
        """The run as it is now; None where nothing was written, or it was read not long ago."""
        folder = followed_folder(run)
        seen = self._of(key)
        if folder is None or self._clock() < seen.after:
            return None
        # Callers see the former state while another one reads.
        if not seen.lock.acquire(blocking=False):
            return None
        try:
            files = _files(folder, run)
            if files == seen.files:
                return None
            began = self._clock()
            found = _read(run)
            seen.files, seen.at = files, datetime.now(UTC)
            self.took(key, self._clock() - began)
            return found
        finally:
            seen.lock.release()

    def took(self, key: str, seconds: float) -> None:
        """Take note of what reading or analysing a run has cost."""
        seen = self._seen.get(key)
        if seen is not None:
            seen.after = max(seen.after, self._clock()) + _PAUSE * seconds

    def _of(self, key: str) -> _Seen:
        with self._lock:
            return self._seen.setdefault(key, _Seen())


def _read(run: Run) -> Run | None:
    try:
        return next((one for one in read(run.source) if one.id == run.id), None)
    except StallscopeError:
        return None  # what was read before is still true


def _files(folder: Path, run: Run) -> Hashable:
    """Names and sizes of all files beside a run's logs."""
    found = []
    for place in sorted({(folder / log.path).parent for log in run.logs}):
        try:
            with os.scandir(place) as entries:
                found += [
                    (entry.path, entry.stat().st_size) for entry in entries if entry.is_file()
                ]
        except OSError:
            continue  # gone; the run's page shows the rest
    return tuple(sorted(found))

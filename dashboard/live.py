"""Read running jobs while they are recorded; all users of the dashboard share the readers."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock

from stallscope.analysis import Analysis, analyse
from stallscope.analysis.views.progress import Progress, progress
from stallscope.errors import NotFoundError
from stallscope.parsers.following import Follower

from .memory import give_back
from .run_folder import log_silence_s
from .store.cache import Cache

# Each run needs about 20 MB.
_MAX_RUNS = 8
# Requests that come sooner get the previous state.
_POLL_INTERVAL_S = 0.5


@dataclass(frozen=True)
class LiveState:
    """The latest steps of a running job."""

    #: Increases with every poll that found new steps.
    number: int
    analysis: Analysis
    progress: Progress | None
    #: Seconds since the logs grew.
    silent_s: float = 0.0


class LiveRuns:
    """Readers of running jobs; the least recently used reader is dropped first. Thread-safe.

    Args:
        clock: a monotonic clock in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._runs = Cache(_MAX_RUNS)

    def latest(self, folder: Path, run_id: str) -> LiveState:
        """Return the latest steps of a run; read what was written since the last poll.

        Raises:
            NotFoundError: if the folder or the run's logs do not exist.
        """
        run = self._runs.get((folder, run_id), lambda: _LiveRun(Follower(folder, run_id)))
        return run.latest(self._clock())


class _LiveRun:
    def __init__(self, follower: Follower) -> None:
        self._follower = follower
        self._lock = Lock()
        self._polled_at: float | None = None
        self._changed_at = 0.0
        self._state: LiveState | None = None

    def latest(self, now: float) -> LiveState:
        with self._lock:
            if self._polled_at is None or now - self._polled_at >= _POLL_INTERVAL_S:
                self._polled_at = now
                self._poll(now)
            if self._state is None:
                raise NotFoundError("this run has no log in its folder yet")
            return replace(self._state, silent_s=max(now - self._changed_at, 0.0))

    def _poll(self, now: float) -> None:
        if not self._follower.look():
            return
        analysis = analyse(self._follower.run())
        before = self._state
        number = 1 if before is None else before.number + 1
        self._state = LiveState(number, analysis, progress(analysis))
        # The logs may have grown last long before a user opened the page.
        silence_s = log_silence_s(analysis.run) if before is None else None
        self._changed_at = now - (silence_s or 0.0)
        give_back()

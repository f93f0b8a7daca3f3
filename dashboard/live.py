"""Runs that are followed while they are recorded, shared by everybody who looks at them."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

from stallscope.analysis import Analysis, analyse
from stallscope.analysis.views.progress import Progress, progress
from stallscope.errors import NotFoundError
from stallscope.parsers.following import Follower
from stallscope.run import Run

from .memory import give_back

# Followed at a time; each keeps some 20 MB.
_MOST = 8
# More frequent looks see the last state.
_BETWEEN_LOOKS_S = 0.5


@dataclass(frozen=True)
class Live:
    """The last steps of a run, as they were read last."""

    #: Counts up with every look that found something new.
    number: int
    analysis: Analysis
    progress: Progress | None
    #: Seconds since something new was found.
    silent_s: float


def followed_folder(run: Run) -> Path | None:
    """The folder in which a run is being recorded; None where it has ended, or is elsewhere."""
    if run.status != "open" or "://" in run.source:
        return None
    place = Path(run.source)
    try:
        return place if place.is_dir() else place.parent if place.is_file() else None
    except OSError:
        return None


class Followings:
    """What is followed, the longest unseen dropped first. For all threads.

    Args:
        clock: seconds that only go forward.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = Lock()
        self._followings: OrderedDict[tuple[Path, str], _Following] = OrderedDict()

    def look(self, folder: Path, run_id: str) -> Live:
        """The last steps of a run; reads what was written since the last look.

        Raises:
            NotFoundError: if the folder has gone, or no log of the run is in it.
        """
        key = folder, run_id
        with self._lock:
            following = self._followings.get(key)
            if following is None:
                following = self._followings[key] = _Following(Follower(folder, run_id))
            self._followings.move_to_end(key)
            while len(self._followings) > _MOST:
                self._followings.popitem(last=False)
        return following.look(self._clock())


class _Following:
    def __init__(self, follower: Follower) -> None:
        self._follower = follower
        self._lock = Lock()
        self._looked_at: float | None = None
        self._changed_at = 0.0
        self._number = 0
        self._analysis: Analysis | None = None
        self._progress: Progress | None = None

    def look(self, now: float) -> Live:
        with self._lock:
            if self._looked_at is None or now - self._looked_at >= _BETWEEN_LOOKS_S:
                self._looked_at = now
                self._read(now)
            if self._analysis is None:
                raise NotFoundError("no log of this run is in its folder yet")
            silent = max(now - self._changed_at, 0.0)
            return Live(self._number, self._analysis, self._progress, silent)

    def _read(self, now: float) -> None:
        if not self._follower.look():
            return
        self._analysis = analyse(self._follower.run())
        self._progress = progress(self._analysis)
        self._number += 1
        self._changed_at = now
        give_back()

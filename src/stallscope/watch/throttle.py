"""Limit notifications to one per condition and minute."""

from __future__ import annotations

import math
from collections.abc import Sequence

from .events import WatchEvent

_PAUSE_SECONDS = 60.0


class Throttle:
    """Passes events on, at most one per run and condition in every minute.

    An event that comes too early waits. A later one of the same condition replaces it, so that the
    receiver always gets the last state.
    """

    def __init__(self, pause_seconds: float = _PAUSE_SECONDS) -> None:
        self._pause = pause_seconds
        self._passed: dict[tuple[str, str | None, str], float] = {}
        self._waiting: dict[tuple[str, str | None, str], WatchEvent] = {}

    def passed(self, events: Sequence[WatchEvent], now: float) -> list[WatchEvent]:
        """Return the events to send now.

        Args:
            events: the new events, in order.
            now: monotonic seconds.
        """
        for event in events:
            if event.kind == "completed":
                self._drop_waiting(event)
            self._waiting.pop(event.about, None)
            self._waiting[event.about] = event
        due = [
            event
            for about, event in self._waiting.items()
            if now - self._passed.get(about, -math.inf) >= self._pause
        ]
        for event in due:
            del self._waiting[event.about]
            self._passed[event.about] = now
        return due

    def _drop_waiting(self, completed: WatchEvent) -> None:
        """Drop the waiting events of a run that has completed."""
        place, run_id, _ = completed.about
        self._waiting = {
            about: event for about, event in self._waiting.items() if about[:2] != (place, run_id)
        }

"""Deliver events in order, in a thread; limit how many, and retry while the receiver is down."""

from __future__ import annotations

import json
import math
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from tenacity import RetryCallState, Retrying, retry_if_exception, wait_random_exponential
from tenacity.nap import sleep_using_event
from tenacity.stop import stop_when_event_set

from stallscope.catalogue.entry import moment
from stallscope.formatting.plain import plain

from .receivers import NotDeliveredError, Receiver

# With more waiting notifications, the oldest are dropped.
_MOST_WAITING = 1000
_LONGEST_PAUSE_SECONDS = 30.0
_PAUSE_SECONDS = 60.0

EventKind = Literal["holds", "ceased", "straggler", "completed", "unreadable", "readable", "steps"]


class Delivery:
    """Delivers notifications to one receiver.

    Args:
        receiver: where they go.
        note: called with sentences about failures, on the delivering thread.
        first_pause_seconds: the longest pause before the second attempt.
    """

    def __init__(
        self, receiver: Receiver, note: Callable[[str], None], first_pause_seconds: float = 1.0
    ) -> None:
        self._receiver = receiver
        self._note = note
        self._first_pause = first_pause_seconds
        self._waiting: deque[WatchEvent] = deque()
        self._changed = threading.Condition()
        self._busy = False
        self._closed = False
        self._abandoned = threading.Event()
        self._dropped = 0
        self._thread = threading.Thread(target=self._run, name="notify", daemon=True)
        self._thread.start()

    def add(self, event: WatchEvent) -> None:
        """Deliver an event after those before it."""
        with self._changed:
            self._waiting.append(event)
            if len(self._waiting) > _MOST_WAITING:
                self._waiting.popleft()
                self._dropped += 1
                if self._dropped == 1:
                    self._say(f"more than {_MOST_WAITING:,} wait, so the oldest are dropped")
            self._changed.notify_all()

    def close(self, seconds: float) -> None:
        """Wait at most this long for deliveries; report how many are left."""
        deadline = time.monotonic() + seconds
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            self._changed.wait_for(self._is_idle, deadline - time.monotonic())
            left = len(self._waiting) + self._busy
        self._abandoned.set()
        if left:
            self._say(f"{left} not delivered")

    def _is_idle(self) -> bool:
        return not self._waiting and not self._busy

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closed)
                if not self._waiting or self._abandoned.is_set():
                    return
                event = self._waiting.popleft()
                self._busy = True
            self._deliver(event)
            with self._changed:
                self._busy = False
                self._changed.notify_all()

    def _deliver(self, event: WatchEvent) -> None:
        body = json.dumps(event.content()).encode()
        attempts = Retrying(
            retry=retry_if_exception(lambda error: getattr(error, "again", False)),
            wait=wait_random_exponential(self._first_pause, max=_LONGEST_PAUSE_SECONDS),
            sleep=sleep_using_event(self._abandoned),
            stop=stop_when_event_set(self._abandoned),
            before_sleep=self._say_first_failure,
            reraise=True,
        )
        try:
            attempts(self._receiver.send, body)
        except NotDeliveredError as error:
            if not self._abandoned.is_set():
                self._say(f"not delivered: {error}")
            return
        if attempts.statistics.get("attempt_number", 1) > 1:
            self._say("delivered again")

    def _say_first_failure(self, state: RetryCallState) -> None:
        if state.attempt_number == 1 and state.outcome is not None:
            self._say(f"not delivered: {state.outcome.exception()}; trying again")

    def _say(self, what: str) -> None:
        self._note(f"--notify {self._receiver.name}: {what}")


# -- Limit notifications to one per condition and minute ------------------------------------------


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


# -- Events of runs that are watched, as lines and as JSON ----------------------------------------


@dataclass(frozen=True)
class WatchEvent:
    """Something that has just happened to a run, or to the place of a run."""

    kind: EventKind
    at: datetime
    #: The place, without credentials.
    source: str
    #: One sentence or more.
    text: str
    run_id: str | None = None
    run_name: str | None = None
    condition: str | None = None
    #: The ranks and the stage of a straggler.
    straggler: str | None = None
    #: How the job hangs, as in the JSON report.
    stopped: dict[str, Any] | None = None
    #: Unique, so that a receiver can drop duplicates.
    id: str = field(default_factory=lambda: uuid.uuid4().hex)

    @property
    def about(self) -> tuple[str, str | None, str]:
        """Return a key: a later event with the same key replaces an earlier one."""
        topic = self.straggler or self.condition
        topic = topic or (self.kind if self.kind in ("completed", "steps") else "place")
        return self.source, self.run_id, topic

    def line(self) -> str:
        """Return the event as one line of text."""
        return plain(f"{utc(self.at)} {self.text}")

    def content(self) -> dict[str, Any]:
        """Return the event as a value for JSON."""
        run = None if self.run_id is None else {"id": self.run_id, "name": self.run_name}
        return {
            "schema_version": 1,
            "id": self.id,
            "event": self.kind,
            "time": moment(self.at),
            "source": self.source,
            "run": run,
            "condition": self.condition,
            "text": plain(self.text),
            "stopped": self.stopped,
        }


def utc(at: datetime) -> str:
    """Write a moment to the second."""
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"

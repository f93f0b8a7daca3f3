"""Deliver notifications in order, in a separate thread; retry while the receiver is down."""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Callable

from tenacity import RetryCallState, Retrying, retry_if_exception, wait_random_exponential
from tenacity.nap import sleep_using_event
from tenacity.stop import stop_when_event_set

from .events import WatchEvent
from .receivers import NotDeliveredError, Receiver

# With more waiting notifications, the oldest are dropped.
_MOST_WAITING = 1000
_LONGEST_PAUSE_SECONDS = 30.0


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

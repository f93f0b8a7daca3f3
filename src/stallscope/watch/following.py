"""Follow several places at a time."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from queue import Empty, SimpleQueue

from .events import WatchEvent
from .watcher import Watcher

# Looking takes at most this share of the time, however large a run has grown.
_MOST_TIME_SHARE = 0.5
# The limit for looks that have begun when following ends.
_LAST_LOOK_SECONDS = 1.0


@dataclass(frozen=True)
class _Look:
    """The result of one look at a place."""

    watcher: Watcher
    events: list[WatchEvent]
    #: Whether all runs at the place have completed.
    all_completed: bool


def follow(watchers: Sequence[Watcher], interval_s: float) -> Iterator[list[WatchEvent]]:
    """Yield new events, or an empty list after the interval, until all runs have completed.

    Each place has its own thread, so that a host that does not answer does not delay the others.

    Args:
        watchers: one for each place, after the first look.
        interval_s: the pause between two looks at a place.
    """
    open_places = {watcher for watcher in watchers if not watcher.all_completed}
    if not open_places:
        return
    with _looks(watchers, interval_s) as looks:
        while open_places:
            try:
                look = looks.get(timeout=interval_s)
            except Empty:
                yield []
                continue
            if isinstance(look, Exception):
                raise look
            # A job may be started again after it has completed.
            (open_places.discard if look.all_completed else open_places.add)(look.watcher)
            yield look.events


@contextmanager
def _looks(
    watchers: Sequence[Watcher], interval_s: float
) -> Iterator[SimpleQueue[_Look | Exception]]:
    """Look at each place in a thread; at the end of the block, wait briefly for the last looks."""
    looks: SimpleQueue[_Look | Exception] = SimpleQueue()
    ended = threading.Event()
    # Daemons: the process can end while they wait for an answer.
    threads = [
        threading.Thread(
            target=_look_repeatedly, args=(watcher, interval_s, looks, ended), daemon=True
        )
        for watcher in watchers
    ]
    for thread in threads:
        thread.start()
    try:
        yield looks
    finally:
        ended.set()
        deadline = time.monotonic() + _LAST_LOOK_SECONDS
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))


def _look_repeatedly(
    watcher: Watcher,
    interval_s: float,
    looks: SimpleQueue[_Look | Exception],
    ended: threading.Event,
) -> None:
    took = 0.0
    while not ended.wait(max(interval_s, took * (1 - _MOST_TIME_SHARE) / _MOST_TIME_SHARE)):
        start = time.monotonic()
        try:
            events = watcher.look()
        except Exception as error:
            looks.put(error)
            return
        took = time.monotonic() - start
        looks.put(_Look(watcher, events, watcher.all_completed))

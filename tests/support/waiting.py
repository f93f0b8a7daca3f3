"""Wait for events in other threads, processes and servers."""

from __future__ import annotations

import time
from collections.abc import Callable

#: Ends what hangs, and nothing else: tests usually wait for seconds, and on busy machines for minutes.
PATIENCE_SECONDS = 900.0
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.005, 0.1


def wait_until(
    condition: Callable[[], object],
    what: str | Callable[[], str],
    seconds: float = PATIENCE_SECONDS,
) -> None:
    """Return once a condition holds; fail if it does not hold in time.

    Args:
        condition: checked often at first, and ten times a second later; a slow condition less often, as
            the awaited work may need the same cores.
        what: the expected event, for the message; a function is called when the time is over.
        seconds: how long to wait at most.
    """
    deadline = time.monotonic() + seconds
    pause = _SHORTEST_PAUSE
    while True:
        began = time.monotonic()
        if condition():
            return
        ended = time.monotonic()
        if ended >= deadline:
            description = what if isinstance(what, str) else what()
            raise AssertionError(f"not within {seconds:.0f} s: {description}")
        time.sleep(max(pause, 2 * (ended - began)))
        pause = min(1.5 * pause, _LONGEST_PAUSE)

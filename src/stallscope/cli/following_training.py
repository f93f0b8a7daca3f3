"""Append the series of a training while it runs, and leave the machine to training."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time

from stallscope.errors import StallscopeError
from stallscope.exports.exported_run import Selection
from stallscope.exports.live import follow_into
from stallscope.opening import open_run

from .beside_training import yield_to_training

_INTERVAL_SECONDS = 5.0
# The interval of checks whether training was killed: its workers may keep standard input open.
_CHECK_SECONDS = 1.0


def _wait_for_the_end(ended: threading.Event) -> None:
    """Set the event when training closes its end of standard input."""
    with contextlib.suppress(OSError):
        while os.read(0, 1):
            pass
    ended.set()


def main() -> int:
    """Follow RUN until training ends.

    The arguments are the format, the place for points, RUN, and the number of the training process.
    """
    name, place, source, training = sys.argv[1:]
    yield_to_training()
    ended = threading.Event()
    threading.Thread(target=_wait_for_the_end, args=(ended,), daemon=True).start()

    def wait(seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            if ended.wait(min(left, _CHECK_SECONDS)) or os.getppid() != int(training):
                return True
        return ended.is_set()

    try:
        # A program may train again in the same run.
        follow_into(
            *(name, place, lambda: open_run(source), Selection()),
            *(_INTERVAL_SECONDS, wait),
            until_completed=False,
        )
    except StallscopeError as error:
        print(f"stallscope: {error}", file=sys.stderr)
        return 2
    return 0

"""Run beside training, at low priority: the summary at its end, and the series while it runs."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from pathlib import Path

from stallscope.errors import StallscopeError

# Cores are for ranks that still train.
_NICENESS = 10
# Larger arrays are in mapped files.
_MEMORY = "400MB"
_INTERVAL_SECONDS = 5.0
# The interval of checks whether training was killed: its workers may keep standard input open.
_CHECK_SECONDS = 1.0


def main() -> int:
    """Run the program that the first argument names, ``summary`` or ``follow``, with the others."""
    name, *arguments = sys.argv[1:]
    yield_to_training()
    return print_summary(*arguments) if name == "summary" else follow(*arguments)


def yield_to_training() -> None:
    """Leave cores and memory of the machine to training."""
    with contextlib.suppress(AttributeError, OSError):  # Windows, or a sandbox
        os.nice(_NICENESS)
    with contextlib.suppress(OSError):  # not on Linux
        # If memory runs out, the kernel ends this process, not a rank.
        Path("/proc/self/oom_score_adj").write_text("1000")
    os.environ.setdefault("STALLSCOPE_MEMORY", _MEMORY)


def print_summary(limit: str, wait: str, source: str) -> int:
    """Run ``stallscope summary``, given the time for it, the time for open logs, and RUN."""
    # The other program needs none of the commands.
    from .main import main as command

    with contextlib.suppress(AttributeError, OSError):  # Windows, or a sandbox
        # Training ends this process; this is for a training that is killed meanwhile.
        signal.alarm(int(float(limit)) + 2)
    return command(["summary", source, "--wait", wait])


def follow(name: str, place: str, source: str, training: str) -> int:
    """Append the series of a training until it ends.

    Args:
        name: the format.
        place: the place for points.
        source: RUN.
        training: the number of the training process.
    """
    from stallscope.exports.exported_run import Selection
    from stallscope.exports.live import follow_into
    from stallscope.opening import open_run

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


def _wait_for_the_end(ended: threading.Event) -> None:
    """Set the event when training closes its end of standard input."""
    with contextlib.suppress(OSError):
        while os.read(0, 1):
            pass
    ended.set()

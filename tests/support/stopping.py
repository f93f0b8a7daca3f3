"""Wait until a job hangs."""

from __future__ import annotations

from pathlib import Path

from stallscope.analysis.stopped.stopped import Stopped, find_stopped
from stallscope.errors import StallscopeError
from stallscope.parsers import read

from .waiting import wait_until


def wait_for_stopped(logs: Path, step: int = 0) -> Stopped:
    """Return how a job hangs, once its logs show which ranks are missing and which wait.

    Args:
        logs: the folder of its logs.
        step: the first in which it may hang: on a busy machine it may seem to before.
    """
    hangs: list[Stopped] = []

    def is_seen() -> bool:
        try:
            seen = find_stopped(read(str(logs))[0])
        except StallscopeError:
            # The ranks have not started yet.
            return False
        if seen is not None and seen.ranks and seen.waiting and seen.step >= step:
            hangs.append(seen)
        return bool(hangs)

    wait_until(is_seen, f"the logs in {logs} show which rank is missing")
    return hangs[0]

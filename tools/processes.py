"""List and end processes and their descendants (Linux)."""

from __future__ import annotations

import os
import signal
import time
from collections import defaultdict
from contextlib import suppress
from pathlib import Path

_SECONDS_TO_END = 15.0


def children(parent: int) -> list[int]:
    """Return the children of a process, started from any of its threads."""
    return _by_parent()[parent]


def with_children(pid: int) -> list[int]:
    """Return a process and all its descendants."""
    by_parent, pids = _by_parent(), [pid]
    for parent in pids:
        pids += by_parent[parent]
    return pids


def stat_fields(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat after the name: state, parent and so on.

    Raises:
        OSError: if the process has ended.
    """
    # A name may contain spaces and parentheses.
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def identity(pid: int) -> str | None:
    """Return what distinguishes this process from a later one with the same id; None if it has ended."""
    try:
        fields = stat_fields(pid)
    except OSError:
        return None
    return None if fields[0] == "Z" else f"{pid} {fields[19]}"


def runs(noted: str) -> bool:
    """Return whether the process with this identity still runs."""
    pid = noted.partition(" ")[0]
    return pid.isdigit() and identity(int(pid)) == noted


def end(pid: int) -> None:
    """End a process and its descendants; kill those that ignore the first signal."""
    processes = [identity(process) for process in with_children(pid)]
    for number in (signal.SIGTERM, signal.SIGKILL):
        left = [noted for noted in processes if noted and runs(noted)]
        for noted in left:
            with suppress(ProcessLookupError):
                os.kill(int(noted.partition(" ")[0]), number)
        deadline = time.monotonic() + _SECONDS_TO_END
        while any(runs(noted) for noted in left) and time.monotonic() < deadline:
            time.sleep(0.02)


def _by_parent() -> dict[int, list[int]]:
    children: dict[int, list[int]] = defaultdict(list)
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            children[int(stat_fields(int(folder.name))[1])].append(int(folder.name))
    return children

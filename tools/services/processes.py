"""Find and end processes by id, but never a later process with the same id (Linux)."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

_SECONDS_TO_END = 15.0


def identity(pid: int) -> str | None:
    """Return what distinguishes this process from a later one with the same id; None if it has ended."""
    fields = _stat(pid)
    return f"{pid} {fields[19]}" if fields and fields[0] != "Z" else None


def runs(noted: str) -> bool:
    """Return whether the process with this identity still runs."""
    pid = noted.partition(" ")[0]
    return pid.isdigit() and identity(int(pid)) == noted


def end(pid: int) -> None:
    """End a process and its descendants; kill those that ignore the first signal."""
    processes = [identity(one) for one in with_children(pid)]
    for number in (signal.SIGTERM, signal.SIGKILL):
        left = [noted for noted in processes if noted and runs(noted)]
        for noted in left:
            with suppress(ProcessLookupError):
                os.kill(int(noted.partition(" ")[0]), number)
        deadline = time.monotonic() + _SECONDS_TO_END
        while any(runs(noted) for noted in left) and time.monotonic() < deadline:
            time.sleep(0.02)


def with_children(pid: int) -> list[int]:
    """Return a process and its descendants."""
    parents = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and (fields := _stat(int(folder.name))):
            parents[int(folder.name)] = int(fields[1])
    found = [pid]
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return found


def _stat(pid: int) -> list[str] | None:
    """Return the fields of /proc/PID/stat after the name: state, parent and so on."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None

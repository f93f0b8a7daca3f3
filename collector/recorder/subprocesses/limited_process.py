"""Run another process with limits on time and memory."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path
from typing import List, NamedTuple

# The time between two checks of its memory.
_LOOK_SECONDS = 0.1


class Limits(NamedTuple):
    """How long a process may take, and how much memory it may have."""

    seconds: float
    memory_bytes: int


class Result(NamedTuple):
    """The output of a process; ``reached`` names the limit that ended it, or is empty."""

    output: str
    errors: str
    status: int
    reached: str


def run_limited(command: List[str], limits: Limits) -> Result:
    """Run a command, and end it at a limit. Memory is limited on Linux only.

    Raises:
        OSError: if it does not start.
    """
    deadline = time.monotonic() + limits.seconds
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
        env={**os.environ, "PYTHONIOENCODING": "utf-8"},
    )
    try:
        while True:
            try:
                output, errors = process.communicate(timeout=_LOOK_SECONDS)
                return Result(output, errors, process.returncode, "")
            except subprocess.TimeoutExpired:
                reached = _reached(process.pid, deadline, limits)
                if reached:
                    return Result("", "", -1, reached)
    finally:
        # Do not wait for it: a process that waits for a network drive does not end at once.
        if process.poll() is None:
            process.kill()


def _reached(pid: int, deadline: float, limits: Limits) -> str:
    """Return which limit a process has reached; empty if none."""
    if time.monotonic() > deadline:
        return "%g s" % limits.seconds
    if _memory(pid) > limits.memory_bytes:
        return "%g GB of memory" % (limits.memory_bytes / 1e9)
    return ""


def _memory(pid: int) -> int:
    """Return the bytes of memory that are not files; 0 if unknown."""
    try:
        lines = Path("/proc/%d/status" % pid).read_text().splitlines()
    except OSError:
        return 0
    sizes = [line.split()[1] for line in lines if line.startswith("RssAnon:")]
    return int(sizes[0]) * 1024 if sizes else 0

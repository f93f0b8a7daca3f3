"""Describe the machine that a benchmark runs on, and measure its other load meanwhile."""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path
from typing import Any

_KIB = 1024


def facts() -> dict[str, Any]:
    """Describe the machine for the file of results."""
    return {
        "cpu": _first("/proc/cpuinfo", "model name") or platform.processor() or None,
        "cores": os.cpu_count(),
        "memory_gib": _memory_gib(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }


class Contention:
    """Measures how much of the machine other processes use during the block.

    ``others`` is the share of all cores' time that was used by processes that this one did not start;
    None if the system does not report it.
    """

    def __enter__(self) -> Contention:
        self._busy, self._spent_before, self._began = (
            _busy_seconds(),
            _own_seconds(),
            time.monotonic(),
        )
        self.others: float | None = None
        return self

    def __exit__(self, *_: object) -> None:
        busy = _busy_seconds()
        if busy is None or self._busy is None:
            return
        spent = _own_seconds() - self._spent_before
        cores = (time.monotonic() - self._began) * (os.cpu_count() or 1)
        self.others = min(1.0, max(0.0, busy - self._busy - spent) / cores)


def _busy_seconds() -> float | None:
    """Return the busy seconds of all cores since the machine started."""
    try:
        words = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
    except OSError:
        return None
    user, nice, system, _idle, _wait, irq, softirq, steal = map(int, words)
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def _own_seconds() -> float:
    """Return the CPU seconds of this process and of its children that have ended."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


def _memory_gib() -> float | None:
    kib = _first("/proc/meminfo", "MemTotal")
    return None if kib is None else round(int(kib.split()[0]) / _KIB**2, 1)


def _first(path: str, name: str) -> str | None:
    """Return the first value of that name in a file of ``name: value`` lines."""
    try:
        lines = Path(path).read_text().splitlines()
    except OSError:
        return None
    values = (line.partition(":")[2].strip() for line in lines if line.startswith(name))
    return next(values, None)

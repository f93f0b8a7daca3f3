"""Read the figures of this process: time on cores, memory, faults, reads and writes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Dict, Iterator, List, Optional

from .figures import FigureColumn, FigureSource, KernelFile, numbers_by_name

_THREADS = Path("/proc/self/task")


def sources() -> Iterator[FigureSource]:
    """Yield the figures that this system has."""
    for make in (_usage, _memory, _disk, _run_delay):
        try:
            yield make()
        except (ImportError, OSError, ValueError, IndexError):
            continue


def _usage() -> FigureSource:
    import resource

    def read() -> List[Optional[int]]:
        used = resource.getrusage(resource.RUSAGE_SELF)
        cpu_us = int((used.ru_utime + used.ru_stime) * 1e6)
        return [cpu_us, used.ru_nvcsw, used.ru_nivcsw, used.ru_minflt, used.ru_majflt]

    figures = (
        FigureColumn("cpu_ms", divisor=1000),
        FigureColumn("voluntary_switches"),
        FigureColumn("involuntary_switches"),
        FigureColumn("minor_faults"),
        FigureColumn("major_faults"),
    )
    return FigureSource(figures, read)


def _memory() -> FigureSource:
    statm, page = KernelFile("/proc/self/statm"), os.sysconf("SC_PAGE_SIZE")

    def read() -> List[Optional[int]]:
        return [int(statm.read().split()[1]) * page]

    return _checked(FigureSource((FigureColumn("resident_mb", grows=False, divisor=10**6),), read))


def _disk() -> FigureSource:
    """Count bytes that really come from a disk or a network file system, or go there."""
    file = KernelFile("/proc/self/io")

    def read() -> List[Optional[int]]:
        numbers = numbers_by_name(file.read())
        return [numbers.get(b"read_bytes"), numbers.get(b"write_bytes")]

    return _checked(
        FigureSource(
            (FigureColumn("read_kb", divisor=1000), FigureColumn("written_kb", divisor=1000)), read
        )
    )


def _run_delay() -> FigureSource:
    """Measure how long all threads were ready to run and had no core."""
    # Threads that have ended must not make the sum smaller.
    ended = 0
    known: Dict[str, int] = {}

    def read() -> List[Optional[int]]:
        nonlocal ended, known
        now = {}
        for thread in _THREADS.iterdir():
            try:
                now[thread.name] = int((thread / "schedstat").read_bytes().split()[1])
            except (FileNotFoundError, ProcessLookupError):  # it has just ended
                continue
        for name, delay in known.items():
            # A reused thread id starts at 0.
            if now.get(name, -1) < delay:
                ended += delay
        known = now
        return [ended + sum(now.values())]

    return _checked(
        FigureSource((FigureColumn("run_delay_ms", divisor=10**6),), read, is_slow=True)
    )


def _checked(source: FigureSource) -> FigureSource:
    """Return a source after a first reading, which raises if it does not work."""
    source.read()
    return source

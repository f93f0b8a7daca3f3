"""Find out whether the process that wrote a log still exists, where it ran on this machine."""

from __future__ import annotations

import socket
from pathlib import Path

from stallscope.collector.recorder.identity import process_start_ns
from stallscope.run import Log

# Starts of one process, measured twice, differ by less.
_SAME_START_NS = 2_000_000_000


def has_gone(log: Log) -> bool | None:
    """Return whether a log's process has ended; None if it ran elsewhere, or if that is unknown."""
    pid = log.facts.get("pid")
    if not isinstance(pid, int) or not _is_of_this_machine(log):
        return None
    # Process numbers are used again.
    return abs(process_start_ns(pid) - log.process_start) > _SAME_START_NS


def _is_of_this_machine(log: Log) -> bool:
    """Whether a log is of this boot and host name: containers of one machine share the former only."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return False
    return log.clock_domain == boot and log.host == socket.gethostname()

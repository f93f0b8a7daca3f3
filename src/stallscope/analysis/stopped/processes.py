"""Check whether the process that wrote a log still exists, if it ran on this machine."""

from __future__ import annotations

import socket

from stallscope.collector.recorder.job.facts import clock_domain
from stallscope.collector.recorder.job.launch import process_start_ns
from stallscope.run import Log


def process_has_ended(log: Log) -> bool | None:
    """Whether a log's process has ended; None if it ran elsewhere, or if that is unknown."""
    pid = log.facts.get("pid")
    if not isinstance(pid, int) or not _is_of_this_machine(log):
        return None
    return not log.is_of_process_started_at(process_start_ns(pid))


def _is_of_this_machine(log: Log) -> bool:
    """Whether a log has this host name and boot: containers of one machine share only the boot."""
    return log.host == socket.gethostname() and log.clock_domain == clock_domain()

"""Executors that Spark lost while they trained."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from stallscope.formatting.lists import clipped, counted
from stallscope.run import Event

from .finding import Finding
from .records import Records

_BEGINS, _ENDS = "stage_submitted", ("stage_completed", "stage_failed")
# Up to so many hosts are named.
_MOST_HOSTS = 5


def executors_lost(records: Records) -> Iterator[Finding]:
    """Spark's event log tells of executors that were lost, and of tasks that failed with them."""
    lost = _while_training(records.run.events)
    if not lost:
        return
    failed = sum(event.kind == "task_failed" for event in records.run.events)
    hosts = sorted({host for event in lost for host in event.hosts})
    named = ", ".join(clipped(host) for host in hosts[:_MOST_HOSTS])
    named += ", …" if len(hosts) > _MOST_HOSTS else ""
    where = f" on {named}" if named else ""
    tasks = f" {counted(failed, 'task')} that trained failed." if failed else ""
    yield Finding(
        "executors_lost",
        "error" if failed else "warning",
        f"Spark lost {counted(len(lost), 'executor')}{where}",
        f"{clipped(lost[0].where)} reports for the first one: {lost[0].what}.{tasks}",
        "Read the end of that executor's stderr. Where its host was taken back or its memory ran out, "
        "ask for hosts that stay, or more spark.executor.memoryOverhead: Python's memory counts there. "
        "A barrier stage that loses one task starts all of them again.",
    )


def _while_training(events: Sequence[Event]) -> list[Event]:
    """Executors that were lost between the start and the end of a stage that trained.

    When an application ends its executors are stopped, which is none of it.
    """
    lost, running = [], 0
    for event in events:
        if event.kind == _BEGINS:
            running += 1
        elif event.kind in _ENDS:
            running -= 1
        elif event.kind == "executor_lost" and running > 0:
            lost.append(event)
    return lost

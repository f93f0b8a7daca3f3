"""Find executors that Spark lost while they trained."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from stallscope.formatting.lists import clipped, counted
from stallscope.run import Event

from .finding import Finding
from .records import Records

_STARTS, _ENDS = "stage_submitted", ("stage_completed", "stage_failed")
# At most this many hosts are named.
_MOST_HOSTS = 5


def executors_lost(records: Records) -> Iterator[Finding]:
    """Find lost executors, and tasks that failed with them, in Spark's event log."""
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
        "Read the end of that executor's stderr. If its host was preempted, request hosts that are not. "
        "If its memory ran out, raise spark.executor.memoryOverhead, which includes Python's memory. A "
        "barrier stage that loses one task restarts all of them.",
    )


def _while_training(events: Sequence[Event]) -> list[Event]:
    """Select executors that were lost between the start and the end of a training stage.

    Executors that stop when the application ends are not lost.
    """
    lost, running = [], 0
    for event in events:
        if event.kind == _STARTS:
            running += 1
        elif event.kind in _ENDS:
            running -= 1
        elif event.kind == "executor_lost" and running > 0:
            lost.append(event)
    return lost

"""Read starts and ends of training tasks, and lost executors, from Spark's event logs.

    {"Event":"SparkListenerExecutorAdded","Timestamp":1795301429100,"Executor ID":"1","Executor Info":…}
    {"Event":"SparkListenerStageSubmitted","Stage Info":{"Stage ID":1,…,"RDD Info":[{…"Barrier":true…}]}}
    {"Event":"SparkListenerTaskStart","Stage ID":1,"Stage Attempt ID":0,"Task Info":{"Index":1,…}}
    {"Event":"SparkListenerExecutorRemoved","Timestamp":…,"Executor ID":"1","Removed Reason":"…"}

One event per line, times in milliseconds since 1970. Training stages are barrier stages
(TorchDistributor and others) and those of jobs in Horovod's job group; all others are ignored, and most
of their lines are not even parsed. A partition is not a rank: Horovod numbers ranks itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from stallscope.formatting.lists import counted
from stallscope.run import Event

from ...base import Contents, EmbeddedFormat

#: The start of every line of an event log.
BEGINNING = b'{"Event":"'

_EVENT = re.compile(rb'\{"Event":"SparkListener(\w{1,40})"(?:,"Stage ID":(\d{1,9}),)?')
_HOROVOD = "horovod.spark.run"
_MS = 10**6
# No job is later, and nanoseconds since 1970 are int64.
_LATEST_MS = 2**42
_LONGEST_TEXT = 200
# Spark's words for an executor that it no longer needs.
_RELEASED = re.compile(r"killed by driver|idle|shutdown|shutting down", re.IGNORECASE)


class SparkEventsFormat(EmbeddedFormat):
    name: ClassVar[str] = "spark-events"
    title: ClassVar[str] = "Spark's event log"

    def read(self, path: str, data: bytes) -> Contents:
        return Contents(events=tuple(spark_events(path, data)))


def spark_events(path: str, data: bytes) -> list[Event]:
    """Return the events of training in an event log, in order; none in another file."""
    if not data.startswith(BEGINNING):
        return []
    return list(ApplicationEvents().events(path, data.split(b"\n")))


@dataclass
class ApplicationEvents:
    """Extracts the events of one application from the files of its log."""

    path: str = ""
    #: Stages that train.
    stages: set[int] = field(default_factory=set)
    #: Hosts by executor.
    hosts: dict[str, str] = field(default_factory=dict)

    def events(self, path: str, lines: Iterable[bytes]) -> Iterator[Event]:
        """Yield the events of training in the next lines, in order.

        Args:
            path: the file.
            lines: its lines.
        """
        self.path = path
        handlers: Mapping[bytes, Callable[[dict[str, Any]], Iterator[Event]]] = {
            b"JobStart": self._job,
            b"StageSubmitted": self._submitted,
            b"StageCompleted": self._completed,
            b"TaskStart": self._task_start,
            b"TaskEnd": self._task_end,
            b"ExecutorAdded": self._added,
            b"ExecutorRemoved": self._removed,
        }
        for line in lines:
            match = _EVENT.match(line)
            if match is None or match[1] not in handlers:
                continue
            if match[2] is not None and int(match[2]) not in self.stages:
                continue
            content = _parsed(line)
            if content is not None:
                yield from handlers[match[1]](content)

    def _job(self, content: dict[str, Any]) -> Iterator[Event]:
        group = _object(content.get("Properties")).get("spark.jobGroup.id")
        stages = content.get("Stage IDs")
        if str(group).startswith(_HOROVOD) and isinstance(stages, list):
            self.stages |= {stage for stage in stages if isinstance(stage, int)}
        yield from ()

    def _submitted(self, content: dict[str, Any]) -> Iterator[Event]:
        stage = _object(content.get("Stage Info"))
        number = stage.get("Stage ID")
        rdds = stage.get("RDD Info")
        barrier = isinstance(rdds, list) and any(
            _object(rdd).get("Barrier") is True for rdd in rdds
        )
        if isinstance(number, int) and (barrier or number in self.stages):
            self.stages.add(number)
            tasks, kind = stage.get("Number of Tasks"), "barrier stage" if barrier else "stage"
            what = f"Spark submitted {kind} {number}"
            if isinstance(tasks, int):
                what += f" with {counted(tasks, 'task')}"
            yield from self._event("stage_submitted", what, stage.get("Submission Time"))

    def _completed(self, content: dict[str, Any]) -> Iterator[Event]:
        stage = _object(content.get("Stage Info"))
        number, reason = stage.get("Stage ID"), stage.get("Failure Reason")
        if number in self.stages:
            kind = "stage_completed" if reason is None else "stage_failed"
            ended = "ended" if reason is None else f"failed: {_first_line(reason)}"
            yield from self._event(kind, f"stage {number} {ended}", stage.get("Completion Time"))

    def _task_start(self, content: dict[str, Any]) -> Iterator[Event]:
        task = _object(content.get("Task Info"))
        attempt = content.get("Stage Attempt ID")
        again = f", attempt {attempt} of its stage" if attempt else ""
        what = f"{_task(task)} started on executor {task.get('Executor ID')}{again}"
        yield from self._event("task_started", what, task.get("Launch Time"), task.get("Host"))

    def _task_end(self, content: dict[str, Any]) -> Iterator[Event]:
        task, end = _object(content.get("Task Info")), _object(content.get("Task End Reason"))
        well = end.get("Reason") == "Success"
        why = end.get("Loss Reason") or end.get("Kill Reason") or end.get("Description") or ""
        reason = f"{end.get('Reason')} {_first_line(why)}".strip()
        what = f"{_task(task)} " + ("ended" if well else f"failed: {reason}")
        kind = "task_ended" if well else "task_failed"
        yield from self._event(kind, what, task.get("Finish Time"), task.get("Host"))

    def _added(self, content: dict[str, Any]) -> Iterator[Event]:
        executor, host = (
            str(content.get("Executor ID")),
            _object(content.get("Executor Info")).get("Host"),
        )
        if isinstance(host, str):
            self.hosts[executor] = host
        what = f"executor {executor} was added"
        yield from self._event("executor_added", what, content.get("Timestamp"), host)

    def _removed(self, content: dict[str, Any]) -> Iterator[Event]:
        executor, reason = (
            str(content.get("Executor ID")),
            _first_line(content.get("Removed Reason")),
        )
        released = _RELEASED.search(reason) is not None
        kind, ended = (
            ("executor_released", "was released")
            if released
            else ("executor_lost", f"was lost: {reason}")
        )
        what = f"executor {executor} {ended}"
        yield from self._event(kind, what, content.get("Timestamp"), self.hosts.get(executor))

    def _event(self, kind: str, what: str, ms: object, host: object = None) -> Iterator[Event]:
        known = isinstance(ms, int) and not isinstance(ms, bool) and 0 < ms < _LATEST_MS
        yield Event(
            kind=kind,
            where=self.path,
            what=what,
            hosts=(host,) if isinstance(host, str) else (),
            wall_ns=ms * _MS if known and isinstance(ms, int) else None,
            uncertainty_ns=_MS,
        )


def _parsed(line: bytes) -> dict[str, Any] | None:
    """Parse one line; None for a torn one."""
    try:
        content = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None


def _task(task: Mapping[str, Any]) -> str:
    return f"the task of partition {task.get('Index')}"


def _object(content: object) -> dict[str, Any]:
    return content if isinstance(content, dict) else {}


def _first_line(text: object) -> str:
    lines = str(text).strip().splitlines()
    return lines[0][:_LONGEST_TEXT].strip() if lines else ""

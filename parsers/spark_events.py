"""Spark's event logs: when tasks that train began and ended, and which executors were lost.

    {"Event":"SparkListenerExecutorAdded","Timestamp":1795301429100,"Executor ID":"1","Executor Info":…}
    {"Event":"SparkListenerStageSubmitted","Stage Info":{"Stage ID":1,…,"RDD Info":[{…"Barrier":true…}]}}
    {"Event":"SparkListenerTaskStart","Stage ID":1,"Stage Attempt ID":0,"Task Info":{"Index":1,…}}
    {"Event":"SparkListenerExecutorRemoved","Timestamp":…,"Executor ID":"1","Removed Reason":"…"}

A line each, milliseconds since 1970. Stages train that are barrier stages (TorchDistributor and others),
or whose job has Horovod's job group; all others are ignored, and most of their lines are not
even parsed. A partition is not a rank: Horovod numbers ranks anew.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from stallscope.run import Event

#: How every line of an event log begins.
BEGINNING = b'{"Event":"'

_EVENT = re.compile(rb'\{"Event":"SparkListener(\w{1,40})"(?:,"Stage ID":(\d{1,9}),)?')
_HOROVOD = "horovod.spark.run"
_MS = 10**6
# Further from now no job has been, and nanoseconds since 1970 are int64.
_LATEST_MS = 2**42
_LONGEST = 200
# Spark's words for an executor that it no longer needs.
_RELEASED = re.compile(r"killed by driver|idle|shutdown|shutting down", re.IGNORECASE)


def spark_events(path: str, data: bytes) -> list[Event]:
    """Return the events of training in an event log, in its order; none if the file is not one."""
    if not data.startswith(BEGINNING):
        return []
    return list(Telling().events(path, data.split(b"\n")))


@dataclass
class Telling:
    """The state of one application so far; its log may be in several files."""

    path: str = ""
    #: Stages that train.
    stages: set[int] = field(default_factory=set)
    #: By executor, its host.
    hosts: dict[str, str] = field(default_factory=dict)

    def events(self, path: str, lines: Iterable[bytes]) -> Iterator[Event]:
        """Return the events of training in the next lines, in their order.

        Args:
            path: of the file that they are in.
        """
        self.path = path
        tellers: Mapping[bytes, Callable[[dict[str, Any]], Iterator[Event]]] = {
            b"JobStart": self._job,
            b"StageSubmitted": self._submitted,
            b"StageCompleted": self._completed,
            b"TaskStart": self._task_start,
            b"TaskEnd": self._task_end,
            b"ExecutorAdded": self._added,
            b"ExecutorRemoved": self._removed,
        }
        for line in lines:
            found = _EVENT.match(line)
            if found is None or found[1] not in tellers:
                continue
            if found[2] is not None and int(found[2]) not in self.stages:
                continue
            content = _parsed(line)
            if content is not None:
                yield from tellers[found[1]](content)

    def _job(self, told: dict[str, Any]) -> Iterator[Event]:
        group = _object(told.get("Properties")).get("spark.jobGroup.id")
        stages = told.get("Stage IDs")
        if str(group).startswith(_HOROVOD) and isinstance(stages, list):
            self.stages |= {stage for stage in stages if isinstance(stage, int)}
        yield from ()

    def _submitted(self, told: dict[str, Any]) -> Iterator[Event]:
        stage = _object(told.get("Stage Info"))
        number = stage.get("Stage ID")
        rdds = stage.get("RDD Info")
        barrier = isinstance(rdds, list) and any(
            _object(rdd).get("Barrier") is True for rdd in rdds
        )
        if isinstance(number, int) and (barrier or number in self.stages):
            self.stages.add(number)
            tasks, kind = stage.get("Number of Tasks"), "barrier stage" if barrier else "stage"
            what = f"Spark submitted {kind} {number} with {tasks} task(s)"
            yield from self._event("stage_submitted", what, stage.get("Submission Time"))

    def _completed(self, told: dict[str, Any]) -> Iterator[Event]:
        stage = _object(told.get("Stage Info"))
        number, reason = stage.get("Stage ID"), stage.get("Failure Reason")
        if number in self.stages:
            kind = "stage_completed" if reason is None else "stage_failed"
            ended = "ended" if reason is None else f"failed: {_first_line(reason)}"
            yield from self._event(kind, f"stage {number} {ended}", stage.get("Completion Time"))

    def _task_start(self, told: dict[str, Any]) -> Iterator[Event]:
        task = _object(told.get("Task Info"))
        attempt = told.get("Stage Attempt ID")
        again = f", attempt {attempt} of its stage" if attempt else ""
        what = f"{_task(task)} started on executor {task.get('Executor ID')}{again}"
        yield from self._event("task_started", what, task.get("Launch Time"), task.get("Host"))

    def _task_end(self, told: dict[str, Any]) -> Iterator[Event]:
        task, end = _object(told.get("Task Info")), _object(told.get("Task End Reason"))
        well = end.get("Reason") == "Success"
        why = end.get("Loss Reason") or end.get("Kill Reason") or end.get("Description") or ""
        reason = f"{end.get('Reason')} {_first_line(why)}".strip()
        what = f"{_task(task)} " + ("ended" if well else f"failed: {reason}")
        kind = "task_ended" if well else "task_failed"
        yield from self._event(kind, what, task.get("Finish Time"), task.get("Host"))

    def _added(self, told: dict[str, Any]) -> Iterator[Event]:
        executor, host = (
            str(told.get("Executor ID")),
            _object(told.get("Executor Info")).get("Host"),
        )
        if isinstance(host, str):
            self.hosts[executor] = host
        what = f"executor {executor} was added"
        yield from self._event("executor_added", what, told.get("Timestamp"), host)

    def _removed(self, told: dict[str, Any]) -> Iterator[Event]:
        executor, reason = str(told.get("Executor ID")), _first_line(told.get("Removed Reason"))
        released = _RELEASED.search(reason) is not None
        kind, ended = (
            ("executor_released", "was released")
            if released
            else ("executor_lost", f"was lost: {reason}")
        )
        what = f"executor {executor} {ended}"
        yield from self._event(kind, what, told.get("Timestamp"), self.hosts.get(executor))

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
    """One line; None for one that is torn."""
    try:
        content = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None


def _task(task: Mapping[str, Any]) -> str:
    return f"the task of partition {task.get('Index')}"


def _object(told: object) -> dict[str, Any]:
    return told if isinstance(told, dict) else {}


def _first_line(text: object) -> str:
    lines = str(text).strip().splitlines()
    return lines[0][:_LONGEST].strip() if lines else ""

"""Read Spark's event logs of any length, and recognise what else Spark writes.

    app-20261121230239-0000[.lz4|.snappy|.lzf|.zstd][.inprogress]
    eventlog_v2_app-20261121230239-0000/{appstatus_app-…, events_1_app-…, events_2_app-…[.compact]}

Applications that run for weeks leave gigabytes with a few lines about training: files are streamed, and
only events of training are kept. The state of an application carries over from one of its files to the
next.
"""

from __future__ import annotations

import json
import re
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, ClassVar, NamedTuple

from stallscope.collector.sources.source import SourceFile
from stallscope.collector.sources.spark_layout import is_spark_output
from stallscope.errors import StallscopeError, UnreadableError
from stallscope.formatting.lists import counted
from stallscope.run import Event, Problem

from ..base import CompanionFormat, Contents, EmbeddedFormat
from ..files.unpacking import TRUNCATED, Unpacking, opened, readable

#: The most bytes of an application to read, uncompressed: about ten seconds.
MOST_BYTES = 4 << 30
# The same for a remote log.
_MOST_REMOTE_BYTES = 256 << 20
# More cannot be shown, and each takes half a kilobyte.
_MOST_EVENTS = 200_000
_PIECE = 1 << 20
# The size of requests for a remote file.
_REQUEST_BYTES = 8 << 20
# The longest lines have a stage's whole plan; longer ones are skipped.
_LONGEST_LINE = 32 << 20
_PART = re.compile(r"events_(\d{1,9})_.+?(\.compact)?")
_STATUS = re.compile(r"appstatus_.+")
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


class EventLog(NamedTuple):
    """The events of one application's log."""

    events: list[Event]
    #: Parts that were not read, with the reasons.
    problems: list[Problem]
    #: The files that are event logs by their contents, too.
    files: list[str]


def applications(files: Sequence[SourceFile]) -> list[list[SourceFile]]:
    """Group files by event log, in the order in which they were written.

    Args:
        files: files with names of event logs.
    """
    rolled: dict[str, list[tuple[int, bool, SourceFile]]] = {}
    logs: list[list[SourceFile]] = []
    for file in files:
        folder, _, name = file.name.rpartition("/")
        part = _PART.fullmatch(name)
        if part is not None:
            rolled.setdefault(folder, []).append((int(part[1]), part[2] is not None, file))
        elif not _STATUS.fullmatch(name):
            logs.append([file])
    return logs + [_in_order(parts) for parts in rolled.values()]


def _in_order(parts: list[tuple[int, bool, SourceFile]]) -> list[SourceFile]:
    """Sort parts, and drop those that a compacted part replaces; Spark deletes them later."""
    stands_for = max((number for number, compacted, _ in parts if compacted), default=0)
    kept = [
        (number, file)
        for number, compacted, file in parts
        if number > stands_for or (compacted and number == stands_for)
    ]
    return [file for _, file in sorted(kept, key=lambda pair: pair[0])]


def most_bytes(local: bool) -> int:
    """Return how many bytes of an application's log to read.

    Args:
        local: whether reading it is as cheap as reading a copy.
    """
    return MOST_BYTES if local else _MOST_REMOTE_BYTES


def read_event_log(parts: Sequence[SourceFile], most: int = MOST_BYTES) -> EventLog:
    """Return the events of training in an application's log; none if it is not an event log.

    Args:
        parts: its files, in their order.
        most: the most bytes to read.
    """
    application, event_log, left = ApplicationEvents(), EventLog([], [], []), most
    for part in parts:
        lines = _Lines(part, left)
        try:
            new = application.events(part.name, lines)
            event_log.events.extend(islice(new, _MOST_EVENTS + 1 - len(event_log.events)))
        except StallscopeError as error:
            what = str(error).removeprefix(f"{part.where}: ").removeprefix(f"{part.name}: ")
            event_log.problems.append(Problem(part.name, what))
        if lines.count:
            event_log.files.append(part.name)
        if lines.truncated:
            event_log.problems.append(Problem(part.name, TRUNCATED))
        left -= lines.count
        if left < 0 or len(event_log.events) > _MOST_EVENTS:
            amount = _amount(most) if left < 0 else f"{_MOST_EVENTS:,} events"
            what = f"only the first {amount} of this application's log were looked at"
            event_log.problems.append(Problem(part.name, what))
            break
    del event_log.events[_MOST_EVENTS:]
    return event_log


class _Lines:
    """Iterates over the whole lines of one file of an event log, and counts the bytes read.

    Args:
        file: a file, also compressed or no event log.
        most: the most bytes to read, and one more if there are more.
    """

    def __init__(self, file: SourceFile, most: int) -> None:
        self.count = 0
        self.truncated = False
        self._file = file
        self._most = most

    def __iter__(self) -> Iterator[bytes]:
        rest, too_long = b"", False
        for piece in self._pieces():
            first, *lines = piece.split(b"\n")
            rest = b"" if too_long else rest + first
            if lines:
                yield rest
                yield from lines[:-1]
                rest, too_long = lines[-1], False
            if len(rest) > _LONGEST_LINE:
                rest, too_long = b"", True
        yield rest

    def _pieces(self) -> Iterator[bytes]:
        stream = readable(self._file.where, opened(self._file, _REQUEST_BYTES))
        packed = stream if isinstance(stream, Unpacking) else None
        piece = stream.read(min(_PIECE, self._most + 1))
        if packed is not None and not piece:
            raise UnreadableError(f"{self._file.where}: the compressed file is empty or damaged")
        mark = len(BOM_UTF8) if piece.startswith(BOM_UTF8) else 0
        if not piece.startswith(BEGINNING, mark):
            return
        while piece:
            self.count += len(piece)
            yield piece[mark:]
            mark = 0
            piece = stream.read(min(_PIECE, self._most + 1 - self.count))
        self.truncated = packed is not None and packed.truncated


def _amount(count: int) -> str:
    return f"{count >> 20:,} MiB" if not count % (1 << 20) else f"{count:,} bytes"


# -- Read starts and ends of training tasks, and lost executors, from Spark's event logs ----------
#
#     {"Event":"SparkListenerExecutorAdded","Timestamp":1795301429100,"Executor ID":"1",…}
#     {"Event":"SparkListenerStageSubmitted","Stage Info":{"Stage ID":1,…,"RDD Info":[{…}]}}
#     {"Event":"SparkListenerTaskStart","Stage ID":1,"Stage Attempt ID":0,"Task Info":{"Index":1,…}}
#     {"Event":"SparkListenerExecutorRemoved","Timestamp":…,"Executor ID":"1","Removed Reason":"…"}
#
# One event per line, times in milliseconds since 1970. Training stages are barrier stages
# (TorchDistributor and others) and those of jobs in Horovod's job group; all others are ignored,
# and most of their lines are not even parsed. A partition is not a rank: Horovod numbers ranks
# itself.


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
        kind, ended = "executor_released", "was released"
        if not released:
            kind, ended = "executor_lost", f"was lost: {reason}"
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


# -- Recognise Spark's own logs next to the logs of a job -----------------------------------------


class SparkOutputFormat(CompanionFormat):
    name: ClassVar[str] = "spark"
    title: ClassVar[str] = "Spark's own log"

    def recognises(self, file_name: str, head: bytes) -> bool:
        return is_spark_output(file_name, head)

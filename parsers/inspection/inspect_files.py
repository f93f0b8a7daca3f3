"""Inspect logs: the format and contents of each file, and the runs that the files make up.

Only the start and the end of a large file are read, which bounds memory and time.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from stallscope.arrays import arrow
from stallscope.collector.source_kinds import open_source
from stallscope.collector.sources.source import SourceFile, without_companions
from stallscope.collector.sources.spark_layout import is_event_log
from stallscope.errors import StallscopeError
from stallscope.formatting.lists import counted
from stallscope.run import Event, Log, Problem, Run, Series

from ..base import Format, Parsed, Parser, ShowProgress, no_progress
from ..files import with_members
from ..files.unpacking import TRUNCATED, is_packed, plain_text, unpacked_up_to
from ..formats.horovod_timeline import HorovodTimelineFormat
from ..formats.spark import SparkEventsFormat, SparkOutputFormat, applications, read_event_log
from ..formats.step_log.step_log_parser import LogRecordsFormat, is_joined
from ..launcher_output import labels_of, output_by_rank
from ..lines.timestamps import written_at
from ..reader import is_long_timeline, last_changed_ns
from ..registry import by_name
from ..runs.reading import Identified, Reading, unknown_file_notes
from .inspected import (
    PRECISION,
    InspectedFile,
    InspectedRun,
    Inspection,
    Proposal,
    Summary,
    Sure,
    TimeSpan,
    iso,
    key_of,
    proposal_for,
    span_of,
    steps_of,
    summary_of,
)

#: Bytes of a file to read: half of them at its start, half at its end.
MOST_BYTES = 64 << 20
_NO_TRAINING = "contains no training; ignored"
_NO_EPOCHS = "shows no epochs; the run's logs are read"
# Paths of Spark's own outputs; other programs also write stdout and stderr.
_OF_SPARK = re.compile(r"(^|/)(app-\d|application_\d|driver/|executor/|init_scripts/|log4j)")
# The most bytes of all files of a place in which unconfirmed lines are looked for.
_MOST_PROPOSED_BYTES = 64 << 20
# The most kinds of events to list for a file.
_MOST_KINDS = 6

TEXT = "text"
_BY_START = (
    (b"PAR1", "Parquet"),
    (b"\x89HDF\r\n", "HDF5: weights of a model, most likely"),
    (b"PK\x03\x04", "a zip archive: a checkpoint, most likely"),
    (b"SQLite format 3\x00", "an SQLite database"),
    (b"\x89PNG", "a picture"),
    (b"\xff\xd8\xff", "a picture"),
    (b"%PDF", "a PDF"),
    (b"\x7fELF", "a program"),
    (b"\x80\x02", "a pickle"),
    (b"\x80\x04", "a pickle"),
    (b"\x80\x05", "a pickle"),
)
_BY_NAME = (
    (re.compile(r"events\.out\.tfevents\."), "TensorBoard's events"),
    (re.compile(r"\.nsys-rep$|\.qdrep$"), "a report of Nsight Systems"),
    (re.compile(r"\.ckpt|\.data-\d+-of-\d+$|\.index$"), "a checkpoint"),
    (re.compile(r"\.trace\.json$"), "a trace of a profiler"),
)
_TRACE = re.compile(rb'"traceEvents"|"deviceProperties"')


def inspect(
    place: str,
    *,
    read_as: str | None = None,
    most_bytes: int = MOST_BYTES,
    show_progress: ShowProgress = no_progress,
) -> Inspection:
    """Inspect the files at a place, and the runs that they make up, the newest first.

    Args:
        place: a folder, a file, or anything else that logs are read from.
        read_as: the parser for all files.
        most_bytes: the most bytes of a file to read.
        show_progress: shows progress.

    Raises:
        NotFoundError: if nothing is there.
        UnreadableError: if the place cannot be reached.
        UsageError: if there is no such parser.
    """
    reading = Reading(by_name(read_as) if read_as else None)
    source = open_source(place)
    files = with_members(source.files(), local=source.local)
    inspector = _Inspector(reading, most_bytes, without_companions(files))
    with show_progress("reading", len(files)) as update:
        inspector.read_event_logs([file for file in files if is_event_log(file.name)])
        for done, file in enumerate(files):
            update(done)
            inspector.look(file)
    of_files = len(reading.failures)
    runs = inspector.runs(source.where)
    return Inspection(
        tuple(inspector.files(runs)),
        tuple(inspector.run_seen(run) for run in runs),
        tuple(str(error) for error in reading.failures[of_files:]),
    )


class _Inspector:
    def __init__(self, reading: Reading, most_bytes: int, logs: Sequence[SourceFile]) -> None:
        self._reading = reading
        self._logs = {file.name for file in logs}
        self._most = most_bytes
        self._files: list[InspectedFile] = []
        self._summaries: dict[tuple[object, ...], Summary] = {}
        self._cut: set[str] = set()
        #: Problems that runs report about files.
        self._reported: list[Problem] = []
        #: Files of Spark's event logs, each with its problems.
        self._event_logs: dict[str, list[Problem]] = {}
        self._bytes_left = _MOST_PROPOSED_BYTES

    def read_event_logs(self, files: Sequence[SourceFile]) -> None:
        """Read the event logs of Spark applications, each as a whole."""
        for parts in applications(files) if self._reading.forced is None else ():
            event_log = read_event_log(parts, self._most)
            self._reading.events += event_log.events
            self._reading.problems += event_log.problems
            for name in event_log.files:
                self._event_logs[name] = [
                    problem for problem in event_log.problems if problem.where == name
                ]

    def look(self, file: SourceFile) -> None:
        """Look at one file; its problems are reported with it."""
        if file.name in self._event_logs:
            self._files.append(self._event_log(file))
        elif file.name not in self._logs or is_event_log(file.name):
            wrong = (problem for problem in self._reading.problems if problem.where == file.name)
            self._files.append(_named(file, "next to logs", _without_place(wrong)))
        elif self._reading.forced is None and is_long_timeline(file):
            self._files.append(_certain(file, HorovodTimelineFormat()))
        else:
            try:
                with written_at(last_changed_ns(file, local=True)):
                    self._files.append(self._read(file))
            except StallscopeError as error:
                self._reading.failed(file.name, error, file.where)
                what = self._reading.problems[-1].what.removeprefix("cannot be read: ")
                self._files.append(_named(file, "cannot be read", (what,)))

    def runs(self, where: str) -> list[Run]:
        """Return the runs without their rows."""
        records = [self._slim(log) for log in self._reading.records_logs()]
        return self._reading.runs(where, records)

    def files(self, runs: Sequence[Run]) -> list[InspectedFile]:
        """Return the files, completed with what all of them show together."""
        names = {seen.path for seen in self._files}
        logs = [log for run in runs for log in run.logs]
        used = {log.path for log in logs} | {event.where for run in runs for event in run.events}
        used |= {series.where for run in runs for series in run.series}
        printed = [log for log in logs if log.path not in names]
        self._reported = [
            *self._reading.problems,
            *(problem for run in runs for problem in run.problems),
        ]
        return [self._finished(seen, used, printed) for seen in self._files]

    def run_seen(self, run: Run) -> InspectedRun:
        summaries = [
            self._summaries[key_of(log)] for log in run.logs if key_of(log) in self._summaries
        ]
        has_steps = any(summary.steps for summary in summaries)
        problems = [str(problem) for problem in run.problems]
        if any(log.path in self._cut for log in run.logs):
            problems.append("of large files only the beginning and the end were looked at")
        return InspectedRun(
            id=run.id,
            name=run.name,
            source=run.source,
            size=run.size,
            ranks=len(run.ranks),
            size_known=run.size_known,
            size_from=run.fact("size_from"),
            hosts=len(run.hosts) if run.fact("host") is not None else None,
            steps=steps_of(summaries) if has_steps else None,
            epochs=len(frozenset().union(*(summary.epochs for summary in summaries))) or None,
            span=span_of(summaries),
            precision=str(run.fact("precision") or (PRECISION if has_steps else "no times")),
            status=run.status,
            problems=tuple(dict.fromkeys(problems)),
        )

    def _read(self, file: SourceFile) -> InspectedFile:
        data, notes = self._bytes(file)
        data = plain_text(data)
        identified = self._reading.add_file(file.name, file.where, data)
        labels = labels_of(data)
        if _is_unknown(file, identified.format):
            notes += unknown_file_notes(file.name, data)
            seen = self._with_proposal(_named(file, likely_content(file.name, data), notes), data)
            if labels is None:
                return seen
            ranks = sorted({rank for rank, _ in output_by_rank(data) if rank is not None})
            return replace(seen, launcher=labels.launcher, ranks=tuple(ranks))
        seen = self._of_format(file, identified)
        seen = _with_events(
            seen, [event for event in self._reading.events if event.where == file.name]
        )
        seen = self._with_steps_proposed(seen, identified, data)
        if labels is not None:
            notes += _of_labels(labels.local)
            seen = replace(seen, launcher=labels.launcher)
        return replace(seen, notes=(*notes, *seen.notes))

    def _with_proposal(self, seen: InspectedFile, data: bytes) -> InspectedFile:
        """Add what lines about steps would show, or the reason if they show nothing."""
        if self._reading.forced is not None or seen.title != TEXT:
            return seen
        proposal = self._proposed(seen.path, data)
        if isinstance(proposal, str):
            return replace(seen, notes=(*seen.notes, f"no step times are read: {proposal}"))
        return replace(seen, proposal=proposal)

    def _with_steps_proposed(
        self, seen: InspectedFile, identified: Identified, data: bytes
    ) -> InspectedFile:
        """Add what lines about steps would show, next to events without steps."""
        says_no_steps = (
            identified.format is not None and identified.format.gives_way and seen.steps is None
        )
        if self._reading.forced is not None or not says_no_steps:
            return seen
        proposal = self._proposed(seen.path, data)
        return seen if isinstance(proposal, str) else replace(seen, proposal=proposal)

    def _proposed(self, name: str, data: bytes) -> Proposal | str:
        if self._bytes_left <= 0:
            return "many other files were tried first; inspect it alone"
        self._bytes_left -= len(data)
        return proposal_for(name, data)

    def _event_log(self, file: SourceFile) -> InspectedFile:
        events = [event for event in self._reading.events if event.where == file.name]
        notes = _without_place(self._event_logs[file.name])
        seen = replace(_certain(file, SparkEventsFormat()), notes=notes)
        return _with_events(seen, events) if events else replace(seen, notes=(*notes, _NO_TRAINING))

    def _of_format(self, file: SourceFile, identified: Identified) -> InspectedFile:
        parser = identified.format
        assert parser is not None
        if not isinstance(parser, Parser):
            return _certain(file, parser)
        slim = [self._slim(log) for log in identified.logs]
        _replace_last(self._reading, identified.logs, slim)
        summaries = [self._summaries[key_of(log.log)] for log in slim]
        has_steps = any(summary.steps for summary in summaries)
        precision = _first(summary.log.facts.get("precision") for summary in summaries)
        return InspectedFile(
            path=file.name,
            bytes=file.size,
            format=parser.name,
            title=parser.title,
            sure=self._sure(parser),
            ranks=tuple(sorted({summary.log.rank for summary in summaries})),
            steps=steps_of(summaries) if has_steps else None,
            epochs=len(frozenset().union(*(summary.epochs for summary in summaries))) or None,
            span=span_of(summaries),
            precision=str(precision) if precision is not None else PRECISION if has_steps else None,
            torn_lines=sum(summary.log.torn for summary in summaries),
            # For machine metrics, the problem that there are no times does not matter.
            notes=_of_series([series for log in identified.logs for series in log.series])
            or _without_place(problem for log in identified.logs for problem in log.problems),
        )

    def _sure(self, parser: Parser) -> Sure:
        if self._reading.forced is not None:
            return "told"
        return "certain" if parser.certain else "likely"

    def _bytes(self, file: SourceFile) -> tuple[bytes, tuple[str, ...]]:
        """Read the bytes to inspect, with notes about those left out."""
        whole = file.size <= self._most
        data = file.read() if whole else file.read(0, self._most // 2)
        if is_packed(data):
            packed = data if whole else data + file.read(self._most // 2, self._most)
            data, truncated = unpacked_up_to(file.where, packed, self._most)
            if len(data) <= self._most and whole:
                return data, (TRUNCATED,) if truncated else ()
            self._cut.add(file.name)
            return _whole_lines(data), (f"only its first {_size(self._most)} were looked at",)
        if whole:
            return data, ()
        self._cut.add(file.name)
        if is_joined(data):
            # The header of the last of several logs is not in the bytes that are read.
            return _whole_lines(data), (f"only its first {_size(self._most // 2)} were looked at",)
        end = file.read(file.size - self._most // 2, None)
        half = _size(self._most // 2)
        note = f"only its first and last {half} were looked at"
        return _whole_lines(data) + end[end.find(b"\n") + 1 :], (note,)

    def _slim(self, parsed: Parsed) -> Parsed:
        """Replace the steps of a log by a summary."""
        self._summaries[key_of(parsed.log)] = summary_of(
            parsed, whole=parsed.log.path not in self._cut
        )
        # A slice would keep the whole table. Further logs of the file are handled separately.
        return replace(parsed, steps=arrow.empty_table(parsed.steps.schema), more=())

    def _finished(
        self, seen: InspectedFile, used: set[str], printed: Sequence[Log]
    ) -> InspectedFile:
        """Add whether a file is used; for records of step logs that is known for all files only."""
        if seen.title == LogRecordsFormat.title:
            summaries = [
                self._summaries[key_of(log)] for log in printed if key_of(log) in self._summaries
            ]
            return replace(
                seen,
                ranks=tuple(sorted({log.rank for log in printed})),
                steps=steps_of(summaries) or None,
                span=span_of(summaries),
                precision=PRECISION,
                used=bool(printed),
            )
        if seen.format is None or seen.path in used:
            return replace(seen, used=seen.path in used)
        if seen.sure is None:
            return seen
        # It imports MLflow's client, which most logs do not need.
        from ..formats.mlflow import MlflowMetricsParser

        if seen.format == MlflowMetricsParser.name and used:
            # MLflow's record does not know which of the run's artifacts are logs.
            return seen if seen.epochs else replace(seen, notes=(_NO_EPOCHS,))
        reported = _without_place(
            problem for problem in self._reported if problem.where == seen.path
        )
        return replace(seen, notes=tuple(dict.fromkeys((*seen.notes, *reported))))


def _whole_lines(data: bytes) -> bytes:
    """Drop the last line of data if it is incomplete and not the only one."""
    return data[: data.rfind(b"\n") + 1] or data


def _replace_last(reading: Reading, whole: Sequence[Parsed], slim: Sequence[Parsed]) -> None:
    """Replace the logs that were just read, to free their rows."""
    if reading.parsed and reading.parsed[-1] is whole[-1]:
        reading.parsed[-len(slim) :] = slim


def _named(file: SourceFile, title: str, notes: tuple[str, ...]) -> InspectedFile:
    size = None if file.problem else file.size
    return InspectedFile(file.name, size, None, title, None, notes=notes)


def _certain(file: SourceFile, file_format: Format) -> InspectedFile:
    notes = () if file_format.note is None else (file_format.note,)
    return InspectedFile(
        file.name, file.size, file_format.name, file_format.title, "certain", notes=notes
    )


def _is_unknown(file: SourceFile, file_format: Format | None) -> bool:
    """Whether a file has no format, or only a name like those of Spark's own output."""
    named_like_sparks = isinstance(file_format, SparkOutputFormat)
    return file_format is None or (named_like_sparks and not _OF_SPARK.search(file.name))


def _with_events(seen: InspectedFile, events: Sequence[Event]) -> InspectedFile:
    """Add a file's events, and their times if it has no others."""
    if not events:
        return seen
    kinds = Counter(event.kind.replace("_", " ") for event in events)
    counts = ", ".join(f"{count:,} × {kind}" for kind, count in kinds.most_common(_MOST_KINDS))
    walls = [event.wall_ns for event in events if event.wall_ns is not None]
    span = TimeSpan(iso(min(walls)) + "Z", iso(max(walls)) + "Z", True) if walls else None
    return replace(
        seen,
        span=seen.span or span,
        notes=(f"events: {counts}", *seen.notes),
    )


def _of_series(series: Sequence[Series]) -> tuple[str, ...]:
    """Describe a file's machine metrics and their times."""
    if not series:
        return ()
    nodes = {metric.node for metric in series if metric.node is not None}
    of = f" of {len(nodes):,} nodes" if len(nodes) > 1 else ""
    values = sum(len(metric.value) for metric in series)
    first = min(int(metric.wall_ns[0]) for metric in series)
    last = max(int(metric.wall_ns[-1]) for metric in series)
    return (
        f"machine metrics: {len(series):,} series{of}, {counted(values, 'value')} from "
        f"{iso(first)}Z to {iso(last)}Z",
    )


def _of_labels(local: bool) -> tuple[str, ...]:
    if not local:
        return ()
    return ("its labels are ranks within a host: name the files of several hosts one by one",)


def _without_place(problems: Iterable[Problem]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(problem.what for problem in problems))


def _first(values: Iterable[object]) -> object:
    return next((value for value in values if value is not None), None)


def _size(count: int) -> str:
    return f"{count >> 20} MiB" if count >= 1 << 20 else f"{count} bytes"


# -- Name the likely content of files that no parser knows ----------------------------------------


def likely_content(file_name: str, head: bytes) -> str:
    """Name the likely content of a file that no parser knows, in a few words."""
    if not head:
        return "empty"
    for form, title in _BY_NAME:
        if form.search(file_name):
            return title
    for start, title in _BY_START:
        if head.startswith(start):
            return title
    if _TRACE.search(head):
        return "a trace of a profiler"
    return "binary" if b"\0" in head else TEXT

"""Files one after another, and the runs that they make up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Literal

from stallscope.collector.sources.spark_layout import is_spark_output
from stallscope.errors import NotFoundError, StallscopeError, UnreadableError
from stallscope.run import Event, MeasuredInput, Problem, Run, Series, newest_first

from .autotune import is_autotune_log
from .base import Parsed, Parser
from .encoding import in_utf8
from .epochs_only import as_runs, beside_steps
from .events import events_in, with_events
from .grouping import group
from .horovod_timeline import is_timeline
from .input_times import is_input_times, parse_input_times, with_input_times
from .joined import parse_each
from .kineto import KinetoParser, Trace, as_log, read_trace, trace_events, traces_as_runs
from .log_records import LogRecords
from .registry import HEAD_BYTES, recognise
from .series import with_series
from .step_log import StepLogParser
from .unpacking import BROKE_OFF

Kind = Literal[
    "log",
    "records",
    "input-times",
    "autotune-log",
    "horovod-timeline",
    "horovod-log",
    "spark-events",
    "spark",
    "foreign",
]


@dataclass(frozen=True)
class Taken:
    """What a file was taken for."""

    kind: Kind
    #: Who has read it, and the logs in it, where the kind is ``log``.
    parser: Parser | None = None
    logs: tuple[Parsed, ...] = ()


@dataclass
class Reading:
    """What was read so far.

    Args:
        forced: the parser that is to read every file, whatever it looks like.
    """

    forced: Parser | None = None
    parsed: list[Parsed] = field(default_factory=list)
    #: Logs of epochs with the places of their files.
    epochs_only: list[tuple[str, Parsed]] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    failures: list[StallscopeError] = field(default_factory=list)
    records: LogRecords = field(default_factory=LogRecords)
    #: Loaders that were run alone.
    measured: list[MeasuredInput] = field(default_factory=list)
    #: Profilers' traces with the places of their files.
    traces: list[tuple[str, Trace]] = field(default_factory=list)
    #: The events.
    events: list[Event] = field(default_factory=list)
    #: What machines measured of themselves, with the ids that its logs know.
    series: list[tuple[str, Series]] = field(default_factory=list)

    def ahead(self, name: str, data: bytes) -> Parsed | None:
        """The log in a file that is a step log whatever else is read; to be called by any thread.

        Raises:
            UnreadableError: if it cannot be read.
        """
        parser = self.forced or recognise(name, data[:HEAD_BYTES])
        return parse_each(parser, name, data) if isinstance(parser, StepLogParser) else None

    def take(self, name: str, where: str, data: bytes, parsed: Parsed | None = None) -> Taken:
        """Read one file.

        Args:
            name: of the file, relative to what the user named.
            where: it is, for the ids of runs that have none of their own.
            data: its bytes.
            parsed: what ``ahead`` has read in it.

        Raises:
            UnreadableError: if it looks like a log and cannot be read.
        """
        if self.forced is None and is_input_times(name):
            self.measured.append(parse_input_times(name, data))
            return Taken("input-times")
        data = in_utf8(data)
        head = data[:HEAD_BYTES]
        parser = self.forced or recognise(name, head)
        if isinstance(parser, KinetoParser):
            trace = read_trace(name, data)
            self.traces.append((where, trace))
            return Taken("log", parser, (as_log(trace),))
        # Step logs' records in what a program printed know more than the rest of it.
        coarse = parser is None or not parser.has_steps
        told = events_in(name, data) if coarse else {}
        self.events += chain.from_iterable(told.values())
        if self.forced is None and coarse and self.records.add(name, data):
            return Taken("records")
        if parser is None:
            kind = _kind(told) or _beside(name, head)
            what = nothing_in(name, data) if kind == "foreign" else None
            if what is not None:
                self.problems.append(Problem(name, what))
            return Taken(kind)
        read_one = parse_each if isinstance(parser, StepLogParser) else _parse
        one = parsed or read_one(parser, name, data)
        logs = (one, *one.more)
        self.series += [(one.run_id, series) for series in one.series]
        self.problems += one.series_problems
        if coarse:
            self.epochs_only += [(where, log) for log in logs]
        else:
            self.parsed += logs
        return Taken("log", parser, logs)

    def add(self, other: Reading) -> None:
        """Take over what another one has read, but for the records of printed logs."""
        self.parsed += other.parsed
        self.epochs_only += other.epochs_only
        self.problems += other.problems
        self.failures += other.failures
        self.measured += other.measured
        self.traces += other.traces
        self.events += other.events
        self.series += other.series

    def broke_off(self, name: str) -> None:
        """A compressed file gave less than was put into it."""
        self.problems.append(Problem(name, BROKE_OFF))

    def failed(self, name: str, error: StallscopeError) -> None:
        """Damaged, or gone since the files were listed: the others are read all the same."""
        self.failures.append(error)
        self.problems.append(Problem(name, str(error).removeprefix(f"{name}: ")))

    def records_logs(self) -> list[Parsed]:
        """The step logs whose records were found."""
        found = []
        for name, data in self.records.logs():
            try:
                found.append(StepLogParser().parse(name, data))
            except UnreadableError as error:
                self.failed(name, error)
        self.problems += self.records.problems
        return found

    def runs(self, where: str, records: Sequence[Parsed]) -> list[Run]:
        """The runs that all of it makes up, the newest first; none where there are no logs."""
        parsed = [*self.parsed, *self._not_in_files(records)]
        if parsed:
            self.problems += beside_steps(self.epochs_only)
            self.events += chain.from_iterable(trace_events(trace) for _, trace in self.traces)
        elif self.traces:
            parsed = traces_as_runs(self.traces)
            self.problems += beside_steps(self.epochs_only)
        elif self.epochs_only:
            try:
                parsed = as_runs(self.epochs_only)
            except NotFoundError as error:
                self.failures.append(error)
        runs = newest_first(group(where, parsed, self.problems)) if parsed else []
        runs = with_events(with_input_times(runs, self.measured), self.events)
        return with_series(runs, self.series)

    def _not_in_files(self, records: Sequence[Parsed]) -> list[Parsed]:
        """Logs that were only printed: ``sink="both"`` has written the others into files, too."""
        files = {_key(one): one.rows for one in self.parsed}
        return [one for one in records if one.rows > files.get(_key(one), -1)]


def nothing_in(name: str, data: bytes) -> str | None:
    """Return the message about a file that no parser knows; None if there is none.

    Without complaints, programs leave an empty stderr for each rank.
    """
    if data:
        return "no log that Stallscope knows; left alone"
    return "an empty step log" if name.endswith(StepLogParser.suffix) else None


def _parse(parser: Parser, name: str, data: bytes) -> Parsed:
    return parser.parse(name, data)


def _key(one: Parsed) -> tuple[str, int, int, int]:
    return one.run_id, one.log.generation, one.log.rank, one.log.part


def _kind(told: Mapping[str, Sequence[Event]]) -> Kind | None:
    """Return the kind of a file that has only events."""
    if "spark-events" in told:
        return "spark-events"
    return "horovod-log" if told else None


def _beside(name: str, head: bytes) -> Kind:
    """What is meant to lie where logs are, and is read by others; or else foreign."""
    if is_timeline(head):
        return "horovod-timeline"
    if is_autotune_log(head):
        return "autotune-log"
    return "spark" if is_spark_output(name, head) else "foreign"

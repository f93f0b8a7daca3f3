"""What is in logs, file by file, and which runs they make up: a look, and no analysis.

Of a large file only its beginning and its end are read, so that a look takes bounded memory and time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Literal

import pyarrow.compute as pc

from stallscope.collector.sources.base import SourceFile
from stallscope.collector.sources.registry import open_source
from stallscope.collector.sources.spark_layout import is_event_log
from stallscope.errors import StallscopeError
from stallscope.run import Event, Log, Problem, Run, Series

from .base import Parsed, Parser
from .foreign import foreign_title
from .launchers import demultiplexed, labels_of
from .named import by_name
from .packed import unpacked_up_to
from .reader import is_closed_event_log, is_long_timeline, is_no_log
from .reading import Reading, Taken
from .unpacking import is_packed

#: Bytes of a file that are looked at: half of them at its beginning, half at its end.
MOST_BYTES = 64 << 20

Sure = Literal["certain", "likely", "told"]

_TITLES = {
    "records": ("step-log", "records of step logs in what was printed"),
    "autotune-log": ("autotune-log", "Horovod's autotune log"),
    "input-times": ("input-times", "a loader's times, as measure_input wrote them"),
    "horovod-timeline": ("horovod-timeline", "a Horovod Timeline"),
    "horovod-log": ("horovod-log", "what Horovod and its launcher say of stalls and restarts"),
    "spark-events": ("spark-events", "Spark's event log"),
    "spark": ("spark", "Spark's own log"),
}
_READ_BY_TUNE = "stallscope tune reads it"
_CLOSED = "longer than 256 MiB, or compressed as only Spark does it; left alone"
_NO_LOG = "no log that Stallscope knows; left alone"
# Kinds of events that one file is said to tell.
_MOST_KINDS = 6
# As step logs are written, and everything else that tells steps.
_PRECISION = "steps, to the microsecond"


@dataclass(frozen=True)
class Span:
    """From when to when, as ISO 8601; in no zone where lines do not tell theirs."""

    begin: str
    end: str
    zone_known: bool


@dataclass(frozen=True)
class FileSeen:
    """One file. What is not known is None."""

    path: str
    bytes: int
    #: The parser's name; None for what no parser reads.
    format: str | None
    title: str
    sure: Sure | None
    #: Whose labels stand before its lines.
    launcher: str | None = None
    ranks: tuple[int, ...] = ()
    steps: int | None = None
    epochs: int | None = None
    span: Span | None = None
    precision: str | None = None
    torn_lines: int = 0
    #: Whether its times are used in a run.
    used: bool = False
    #: What was skipped and why, and what else is to be known.
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class RunSeen:
    """One run that the files make up."""

    id: str
    name: str
    source: str
    #: Ranks that trained, and those that left a log.
    size: int
    ranks: int
    #: None where logs do not tell.
    hosts: int | None
    steps: int | None
    epochs: int | None
    span: Span | None
    precision: str
    status: str
    problems: tuple[str, ...]


@dataclass(frozen=True)
class Seen:
    """What is at the places that were named."""

    files: tuple[FileSeen, ...]
    runs: tuple[RunSeen, ...]
    #: What is wrong with all of it together.
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class _Summary:
    """What is kept of a log, in place of its rows."""

    log: Log
    steps: int
    first_step: int
    last_step: int
    #: With the fit that they are of, where logs of several fits are told apart.
    epochs: frozenset[tuple[int, int]]
    #: Nanoseconds on the log's clock.
    begin: int | None
    end: int | None


def inspect(place: str, *, read_as: str | None = None, most_bytes: int = MOST_BYTES) -> Seen:
    """What the files at a place are, and the runs that they make up, the newest first.

    Args:
        place: a folder, a file, or anything else that logs are read from.
        read_as: the parser that is to read every file.
        most_bytes: of one file that are looked at.

    Raises:
        NotFoundError: if nothing is there.
        UnreadableError: if the place cannot be reached.
        UsageError: if there is no such parser.
    """
    reading = Reading(by_name(read_as) if read_as else None)
    source = open_source(place)
    looking = _Looking(reading, most_bytes)
    for file in source.files():
        looking.look(file)
    of_files = len(reading.failures)
    runs = looking.runs(source.where)
    return Seen(
        tuple(looking.files(runs)),
        tuple(looking.run_seen(run) for run in runs),
        tuple(str(error) for error in reading.failures[of_files:]),
    )


class _Looking:
    def __init__(self, reading: Reading, most_bytes: int) -> None:
        self._reading = reading
        self._most = most_bytes
        self._files: list[FileSeen] = []
        self._summaries: dict[tuple[object, ...], _Summary] = {}
        self._cut: set[str] = set()

    def look(self, file: SourceFile) -> None:
        """Look at one file; whatever is wrong with it is said of it."""
        if is_closed_event_log(file):
            self._files.append(_named(file, _TITLES["spark-events"][1], (_CLOSED,)))
        elif is_no_log(file) or (self._reading.forced is not None and is_event_log(file.name)):
            self._files.append(_named(file, "beside logs", ()))
        elif self._reading.forced is None and is_long_timeline(file):
            self._files.append(_beside(file, "horovod-timeline"))
        else:
            try:
                self._files.append(self._read(file))
            except StallscopeError as error:
                self._reading.failed(file.name, error)
                what = str(error).removeprefix(f"{file.where}: ").removeprefix(f"{file.name}: ")
                self._files.append(_named(file, "cannot be read", (what,)))

    def runs(self, where: str) -> list[Run]:
        """The runs, without their rows."""
        records = [self._slim(one) for one in self._reading.records_logs()]
        return self._reading.runs(where, records)

    def files(self, runs: Sequence[Run]) -> list[FileSeen]:
        """The files, with what only all of them together tell."""
        names = {seen.path for seen in self._files}
        logs = [log for run in runs for log in run.logs]
        used = {log.path for log in logs} | {event.where for run in runs for event in run.events}
        used |= {series.where for run in runs for series in run.series}
        printed = [log for log in logs if log.path not in names]
        return [self._finished(seen, used, printed) for seen in self._files]

    def run_seen(self, run: Run) -> RunSeen:
        own = [self._summaries[_key(log)] for log in run.logs if _key(log) in self._summaries]
        has_steps = any(one.steps for one in own)
        problems = [str(problem) for problem in run.problems]
        if any(log.path in self._cut for log in run.logs):
            problems.append("of large files only the beginning and the end were looked at")
        return RunSeen(
            id=run.id,
            name=run.name,
            source=run.source,
            size=run.size,
            ranks=len(run.ranks),
            hosts=len(run.hosts) if run.fact("host") is not None else None,
            steps=_union(own) if has_steps else None,
            epochs=len(frozenset().union(*(one.epochs for one in own))) or None,
            span=_span(own),
            precision=_PRECISION if has_steps else str(run.fact("precision") or "no times"),
            status=run.status,
            problems=tuple(dict.fromkeys(problems)),
        )

    def _read(self, file: SourceFile) -> FileSeen:
        data, notes = self._bytes(file)
        taken = self._reading.take(file.name, file.where, data)
        labels = labels_of(data)
        if taken.kind == "foreign":
            seen = _named(file, foreign_title(file.name, data), (_NO_LOG,))
            if labels is None:
                return seen
            ranks = sorted({rank for rank, _ in demultiplexed(data) if rank is not None})
            return replace(seen, launcher=labels.launcher, ranks=tuple(ranks))
        seen = self._of_log(file, taken) if taken.kind == "log" else _beside(file, taken.kind)
        seen = _with_events(seen, [one for one in self._reading.events if one.where == file.name])
        if labels is not None:
            notes += _of_labels(labels.local)
            seen = replace(seen, launcher=labels.launcher)
        return replace(seen, notes=(*notes, *seen.notes))

    def _of_log(self, file: SourceFile, taken: Taken) -> FileSeen:
        parser = taken.parser
        assert parser is not None
        slim = [self._slim(one) for one in taken.logs]
        _replace_last(self._reading, taken.logs, slim)
        own = [self._summaries[_key(one.log)] for one in slim]
        has_steps = any(one.steps for one in own)
        precision = _first(one.log.facts.get("precision") for one in own)
        return FileSeen(
            path=file.name,
            bytes=file.size,
            format=parser.name,
            title=parser.title,
            sure=self._sure(parser),
            ranks=tuple(sorted({one.log.rank for one in own})),
            steps=_union(own) if has_steps else None,
            epochs=len(frozenset().union(*(one.epochs for one in own))) or None,
            span=_span(own),
            precision=_PRECISION if has_steps else None if precision is None else str(precision),
            torn_lines=sum(one.log.torn for one in own),
            # That MLflow knows no times is no note on what it knows of machines.
            notes=_of_series(taken.logs[0].series)
            or _without_place(problem for one in taken.logs for problem in one.problems),
        )

    def _sure(self, parser: Parser) -> Sure:
        if self._reading.forced is not None:
            return "told"
        return "certain" if parser.certain else "likely"

    def _bytes(self, file: SourceFile) -> tuple[bytes, tuple[str, ...]]:
        """The bytes to look at, and what to say of those that are not."""
        whole = file.size <= self._most
        data = file.read() if whole else file.read(0, self._most // 2)
        if is_packed(data):
            packed = data if whole else data + file.read(self._most // 2, self._most)
            data = unpacked_up_to(file.where, packed, self._most)
            if len(data) <= self._most and whole:
                return data, ()
            self._cut.add(file.name)
            return data[: data.rfind(b"\n") + 1], (
                f"only its first {_size(self._most)} were looked at",
            )
        if whole:
            return data, ()
        self._cut.add(file.name)
        end = file.read(file.size - self._most // 2, None)
        half = _size(self._most // 2)
        note = f"only its first and last {half} were looked at"
        return data[: data.rfind(b"\n") + 1] + end[end.find(b"\n") + 1 :], (note,)

    def _slim(self, one: Parsed) -> Parsed:
        """The log without its steps; what is wanted of them is kept."""
        self._summaries[_key(one.log)] = _summary(one)
        return replace(one, steps=one.steps.slice(0, 0)) if one.steps.num_rows else one

    def _finished(self, seen: FileSeen, used: set[str], printed: Sequence[Log]) -> FileSeen:
        """With whether it is used; where records of one log are in is not known of each file."""
        if seen.title == _TITLES["records"][1]:
            own = [self._summaries[_key(log)] for log in printed if _key(log) in self._summaries]
            return replace(
                seen,
                ranks=tuple(sorted({log.rank for log in printed})),
                steps=_union(own) or None,
                span=_span(own),
                precision=_PRECISION,
                used=bool(printed),
            )
        if seen.format is None or seen.path in used:
            return replace(seen, used=seen.path in used)
        if seen.sure is None:
            return seen
        beside = _without_place(p for p in self._reading.problems if p.where == seen.path)
        return replace(seen, notes=tuple(dict.fromkeys((*seen.notes, *beside))))


def _replace_last(reading: Reading, whole: Sequence[Parsed], slim: Sequence[Parsed]) -> None:
    """Let go of the rows that were just read."""
    if reading.parsed and reading.parsed[-1] is whole[-1]:
        reading.parsed[-len(slim) :] = slim


def _summary(one: Parsed) -> _Summary:
    steps, intervals = one.steps, one.intervals
    extremes = pc.min_max(steps["step"]).as_py()
    epochs = {*pc.unique(steps["epoch"]).to_pylist()}
    ended = intervals.filter(pc.equal(intervals["kind"], "epoch"))
    epochs |= {*pc.unique(ended["epoch"]).to_pylist()}
    fit = 0 if steps.num_rows else one.log.part
    begins = [pc.min(table["begin"]).as_py() for table in (steps, intervals)]
    ends = [pc.max(table["end"]).as_py() for table in (steps, intervals)]
    return _Summary(
        log=one.log,
        steps=steps.num_rows,
        first_step=extremes["min"] or 0,
        last_step=extremes["max"] or 0,
        epochs=frozenset((fit, number) for number in epochs if number is not None),
        begin=min((one for one in begins if one is not None), default=None),
        end=max((one for one in ends if one is not None), default=None),
    )


def _union(own: Iterable[_Summary]) -> int:
    """Steps that any of the logs has; a log has all between its first and its last one."""
    count, until = 0, None
    for first, last in sorted((one.first_step, one.last_step) for one in own if one.steps):
        begin = first if until is None else max(first, until + 1)
        count += max(last - begin + 1, 0)
        until = last if until is None else max(until, last)
    return count


def _span(own: Sequence[_Summary]) -> Span | None:
    """From the first to the last moment, where wall clocks are known or lines are stamped."""
    anchored = [one for one in own if one.begin is not None and one.log.facts.get("anchor")]
    if anchored:
        begins = [(one.begin or 0) + one.log.wall_minus_monotonic for one in anchored]
        ends = [(one.end or 0) + one.log.wall_minus_monotonic for one in anchored]
        return Span(_iso(min(begins)) + "Z", _iso(max(ends)) + "Z", True)
    local = [one for one in own if one.begin is not None and one.log.facts.get("began_local")]
    if not local:
        return None
    # Times of lines count from the first of them.
    zero = datetime.fromisoformat(f"{local[0].log.facts['began_local']}+00:00")
    zero_ns = int(zero.timestamp()) * 10**9
    begin, end = min(one.begin or 0 for one in local), max(one.end or 0 for one in local)
    return Span(_iso(zero_ns + begin), _iso(zero_ns + end), False)


def _iso(ns: int) -> str:
    try:
        return f"{datetime.fromtimestamp(ns // 10**9, UTC):%Y-%m-%dT%H:%M:%S}"
    except (ValueError, OverflowError, OSError):
        return "unknown"  # a damaged clock


def _named(file: SourceFile, title: str, notes: tuple[str, ...]) -> FileSeen:
    return FileSeen(file.name, file.size, None, title, None, notes=notes)


def _beside(file: SourceFile, kind: str) -> FileSeen:
    name, title = _TITLES[kind]
    notes = (_READ_BY_TUNE,) if kind in ("autotune-log", "horovod-timeline") else ()
    return FileSeen(file.name, file.size, name, title, "certain", notes=notes)


def _with_events(seen: FileSeen, events: Sequence[Event]) -> FileSeen:
    """With what a file tells of events, and from when to when where it is not known otherwise."""
    if not events:
        return seen
    kinds = Counter(event.kind.replace("_", " ") for event in events)
    told = ", ".join(f"{count:,} × {kind}" for kind, count in kinds.most_common(_MOST_KINDS))
    walls = [event.wall_ns for event in events if event.wall_ns is not None]
    span = Span(_iso(min(walls)) + "Z", _iso(max(walls)) + "Z", True) if walls else None
    return replace(
        seen,
        span=seen.span or span,
        notes=(f"tells of events: {told}", *seen.notes),
    )


def _of_series(series: Sequence[Series]) -> tuple[str, ...]:
    """What a file tells of machines, and from when to when."""
    if not series:
        return ()
    nodes = {one.node for one in series if one.node is not None}
    of = f" of {len(nodes):,} nodes" if len(nodes) > 1 else ""
    values = sum(len(one.value) for one in series)
    first = min(int(one.wall_ns[0]) for one in series)
    last = max(int(one.wall_ns[-1]) for one in series)
    return (
        f"tells what machines measured: {len(series):,} series{of}, {values:,} values from "
        f"{_iso(first)}Z to {_iso(last)}Z",
    )


def _of_labels(local: bool) -> tuple[str, ...]:
    if not local:
        return ()
    return ("its labels are ranks within a host: of several hosts, name each one's file by itself",)


def _without_place(problems: Iterable[Problem]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(problem.what for problem in problems))


def _first(values: Iterable[object]) -> object:
    return next((value for value in values if value is not None), None)


def _key(log: Log) -> tuple[object, ...]:
    of = (str(log.facts.get("run_id")), log.facts.get("repeat"))
    return log.path, *of, log.generation, log.rank, log.part


def _size(count: int) -> str:
    return f"{count >> 20} MiB" if count >= 1 << 20 else f"{count} bytes"

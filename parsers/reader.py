"""Read the runs at a place."""

from __future__ import annotations

import contextlib
import os
import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import PurePath
from typing import Protocol, TypeVar

from stallscope.arrays import arrow
from stallscope.collector.sources.source import Source, SourceFile, without_companions
from stallscope.collector.sources.spark_layout import is_event_log, is_spark_output
from stallscope.collector.store.generations import is_one_generation
from stallscope.errors import (
    NotFoundError,
    StallscopeError,
    UnknownVersionError,
    UnreadableError,
)
from stallscope.formatting.lists import counted, joined
from stallscope.run import INTERVALS_SCHEMA, STEPS_SCHEMA, Run

from .base import (
    Contents,
    Parsed,
    Parser,
    ReadsBlocks,
    ShowProgress,
    UpdateProgress,
    ignore_progress,
    no_progress,
)
from .files import with_members
from .files.unpacking import (
    ENDING,
    Unpacked,
    beginning,
    is_packed,
    opened,
    packed_ns,
    plain_text,
    readable_within_limits,
    unpacked_up_to,
    unpacked_whole,
)
from .formats.step_log.step_log_parser import StepLogParser
from .lines.timestamps import written_at
from .registry import START_BYTES, parsers, recognise
from .runs.reading import Reading, StepMemory

_TIMELINE_HEAD = 4096
_TRACE_NAME = re.compile(rf"\.json({ENDING})?$")
# The size of requests for a file that is read in blocks.
_REQUEST_BYTES = 4 << 20
# What is searched for lines about steps before a file is refused.
_LACKING_BYTES = 4 << 20
# Remote files to prefetch while one is read, and local ones to read at a time.
_AT_ONCE = 8
_CPU_CORES = min(4, os.cpu_count() or 1)
# Smaller files on local disks are read faster without threads, which would wait for Python's lock.
_SMALL_BYTES = 128 << 10

T = TypeVar("T")


class Reads(Protocol):
    """A way of opening files and reading them."""

    def read(self, reading: Reading, files: Sequence[SourceFile], *, local: bool) -> None:
        """Read files into a reading.

        Args:
            reading: collects the contents.
            files: the files.
            local: whether reading them is as cheap as reading a copy.
        """

    def records_logs(self, reading: Reading) -> list[Parsed]:
        """Return the step logs in records among printed lines."""
        return reading.records_logs()


class _LocalReads(Reads):
    """Reads files in this process."""

    def __init__(self, update: UpdateProgress) -> None:
        self._update = update

    def read(self, reading: Reading, files: Sequence[SourceFile], *, local: bool) -> None:
        ahead = partial(read_file, reading)
        read_in_order(reading, files, ahead, local=local, update=self._update)


def read(
    source: str | Source,
    *,
    read_as: str | None = None,
    reads: Reads | None = None,
    show_progress: ShowProgress = no_progress,
) -> list[Run]:
    """Read the runs at a place, the newest first.

    Args:
        source: a folder, a file, a URL that fsspec can open, an MLflow run, or an open place.
        read_as: the name or the import path of the parser for all files; by default each file's format
            is recognised.
        reads: opens and reads the files; by default in this process.
        show_progress: shows how many files were read.

    Raises:
        NotFoundError: if there are no files, or none of a known format.
        UnreadableError: if no file can be read.
    """
    place = _opened(source)
    files = with_members(place.files(), local=place.local)
    logs = without_companions(files)
    memory = StepMemory(sum(file.size for file in logs))
    reading = Reading(_named(read_as) if read_as else None, memory)
    if reading.forced is None and place.local:
        logs = [file for file in logs if not is_long_timeline(file)]
    with show_progress("reading files", len(logs)) as update:
        records = _read_logs(reading, logs, reads or _LocalReads(update), update, local=place.local)
    runs = reading.runs(place.where, records)
    if runs:
        return runs
    unusable = _unusable_step_logs(place.where, reading)
    if unusable is not None:
        raise UnreadableError(unusable)
    if reading.failures:
        raise reading.failures[0]
    raise NotFoundError(reading.without_logs or _nothing_in(place.where, files, reading.messages))


def read_head(place: str) -> Run | None:
    """Read the run in a folder without its rows: its tables are empty, and nothing is said of damage.

    None if only ``read`` can tell: if there is no run, several, other files than step logs, or processes
    that joined or left.
    """
    source, parser = _opened(place), StepLogParser()
    try:
        files = without_companions(source.files())
        heads = [parser.parse_head(file.name, file.read()) for file in files]
    except StallscopeError:
        return None
    logs = [head.log for head in heads]
    if len({head.run_id for head in heads}) != 1 or not is_one_generation(logs, range(len(logs))):
        return None
    logs.sort(key=lambda log: (log.rank, log.part, log.anchor))
    tables = map(arrow.empty_table, (STEPS_SCHEMA, INTERVALS_SCHEMA))
    return Run(heads[0].run_id, source.where, tuple(logs), *tables)


def _read_logs(
    reading: Reading,
    files: Sequence[SourceFile],
    reads: Reads,
    update: UpdateProgress,
    *,
    local: bool,
) -> list[Parsed]:
    """Read all files into a reading; return the step logs in records among printed lines."""
    others = [file for file in files if not is_event_log(file.name)]
    reads.read(reading, others, local=local)
    records = reads.records_logs(reading)
    has_logs = bool(reading.parsed or reading.traces or reading.epochs_only or records)
    if has_logs and reading.forced is None:
        # Event logs alone make no run, and are not even opened then.
        event_logs = [file for file in files if is_event_log(file.name)]
        if event_logs:
            _read_event_logs(reading, event_logs, update, len(others), local=local)
    return records


def _read_event_logs(
    reading: Reading,
    files: Sequence[SourceFile],
    update: UpdateProgress,
    done: int,
    *,
    local: bool,
) -> None:
    """Read Spark's event logs into a reading.

    Args:
        done: the number of files that were read before.
    """
    from .formats.spark import applications, most_bytes, read_event_log

    for parts in applications(files):
        update(done)
        event_log = read_event_log(parts, most_bytes(local))
        reading.events += event_log.events
        reading.problems += event_log.problems
        done += len(parts)


def _named(name: str) -> Parser:
    from .registry import by_name

    return by_name(name)


def last_changed_ns(file: SourceFile, *, local: bool) -> int | None:
    """Return when a file was last changed, by gzip's header if reading it is cheap.

    Args:
        file: the file.
        local: whether reading it is as cheap as reading a copy.
    """
    head = file.read(0, 8) if local and file.name.endswith(".gz") else b""
    return packed_ns(head) or file.modified_ns


def read_in_order(
    reading: Reading,
    files: Sequence[SourceFile],
    ahead: Callable[[SourceFile], tuple[Unpacked, Contents | None]],
    *,
    local: bool,
    update: UpdateProgress = ignore_progress,
) -> None:
    """Read files into a reading; threads open the next few meanwhile.

    Args:
        ahead: reads one file, as ``read_file`` does; several threads call it.
        local: whether reading them is as cheap as reading a copy.
        update: called with the number of files that were read.
    """
    how = (_CPU_CORES, _SMALL_BYTES) if local else (_AT_ONCE,)
    prefetched = _prefetched(files, ahead, *how)
    for done, (file, load) in enumerate(prefetched):
        update(done)
        try:
            whole, contents = load()
            with written_at(last_changed_ns(file, local=local)):
                reading.add_file(file.name, file.where, whole.data, contents)
            if whole.truncated:
                reading.truncated(file.name)
        except (UnreadableError, NotFoundError) as error:
            reading.failed(file.name, error, file.where)


def read_file(reading: Reading, file: SourceFile) -> tuple[Unpacked, Contents | None]:
    """Return the bytes of a file, and its contents if they are read ahead. Thread-safe.

    Raises:
        NotFoundError: if it has gone.
        UnreadableError: if it cannot be read.
    """
    in_blocks = read_in_blocks(reading, file)
    if in_blocks is not None:
        return in_blocks
    whole = unpacked_whole(file.where, file.read())
    return whole, reading.read_ahead(file.name, whole.data)


def read_in_blocks(reading: Reading, file: SourceFile) -> tuple[Unpacked, Contents] | None:
    """Return the start of a large trace and its contents; None for any other file. Thread-safe.

    Raises:
        NotFoundError: if it has gone.
        UnreadableError: if it cannot be read.
    """
    if not _TRACE_NAME.search(file.name) or file.size <= START_BYTES:
        return None
    head = beginning(file, START_BYTES)
    file_format = reading.forced or recognise(file.name, head)
    if not isinstance(file_format, ReadsBlocks):
        return None
    stream = readable_within_limits(file.where, opened(file, _REQUEST_BYTES), file.size)
    contents = file_format.read_blocks(file.name, stream)
    return Unpacked(head, stream.truncated), contents


def _opened(source: str | Source) -> Source:
    if isinstance(source, Source):
        return source
    # Executors read files that the driver has listed, and import no code that opens places.
    from stallscope.collector.source_kinds import open_source

    return open_source(source)


# The start of what is said of a file that permissions or its kind keep from being read.
_UNREAD = "cannot be read: "


def _unusable_step_logs(where: str, reading: Reading) -> str | None:
    """Describe several step logs, or empty ones, without a row; None if there are no such logs."""
    if any(isinstance(failure, UnknownVersionError) for failure in reading.failures):
        return None
    files_of: dict[str, list[str]] = {}
    for problem in reading.problems:
        if problem.where.endswith(StepLogParser.suffix):
            files_of.setdefault(problem.what, []).append(PurePath(problem.where).name)
    count = sum(map(len, files_of.values()))
    if not count or (count == 1 and reading.failures):
        return None
    what = "; ".join(f"{reason}: {joined(names)}" for reason, names in files_of.items())
    if all(reason.startswith(_UNREAD) for reason in files_of):
        what = what.replace(_UNREAD, "")
        return f"{where}: none of {counted(count, 'step log')} can be read: {what}"
    whole = "none with a whole row" if count > 1 else "without a whole row"
    return (
        f"{where}: {counted(count, 'step log')}, {whole} ({what}); copy the logs again from where they "
        "were recorded, or record the run again"
    )


def _nothing_in(where: str, files: Sequence[SourceFile], messages: str) -> str:
    """Say that no log is in files, and what messages there tell."""
    if messages:
        looked = counted(len(files), "file")
        return f"{where}: no logs in {looked}, but how the job ended: {messages}; {_lacking(files)}"
    looked = counted(len(files), "file") if files else "an empty folder"
    if any(is_spark_output(file.name, b"") for file in files):
        return (
            f"{where}: Spark's own logs and no step logs in {looked}; with "
            "StepLogger(None, sink='logging') they are in what executors print"
        )
    from .formats.printed_steps.step_lines_parser import ITS_LINES

    lack = _lacking(files) if files else ""
    if lack.startswith(ITS_LINES):
        return f"{where}: no logs in {looked}: {lack}"
    first, *others = parsers()
    known = f"{first.title} (*{first.suffix}) and logs of {len(others)} other kinds"
    return "; ".join(filter(None, (f"{where}: no logs in {looked}", f"looked for: {known}", lack)))


def _lacking(files: Sequence[SourceFile]) -> str:
    """Say what the lines about steps of a single text lack, or how to see it."""
    from .formats.printed_steps.step_lines_parser import lacking

    if len(files) == 1:
        with contextlib.suppress(StallscopeError, OSError):
            what = lacking(plain_text(files[0].read(0, _LACKING_BYTES)))
            if what:
                return what
    return "stallscope inspect says what their lines about steps lack"


def is_long_timeline(file: SourceFile) -> bool:
    """Whether a file is a Horovod Timeline: they have gigabytes, and are not read here."""
    if not _TRACE_NAME.search(file.name) or file.size <= START_BYTES:
        return False
    from .formats.horovod_timeline import is_timeline

    try:
        head = file.read(0, START_BYTES)
        if is_packed(head):
            head = unpacked_up_to(file.where, head, _TIMELINE_HEAD).data
        return is_timeline(head)
    except StallscopeError:
        return False  # reported where it is read


def _prefetched(
    files: Sequence[SourceFile],
    read_one: Callable[[SourceFile], T],
    at_once: int,
    small_bytes: int = 0,
) -> Iterator[tuple[SourceFile, Callable[[], T]]]:
    """Yield files with functions that return their results; threads read the next few meanwhile.

    Files of fewer than ``small_bytes`` are read when their function is called.
    """
    with ThreadPoolExecutor(at_once) as pool:
        waiting: deque[tuple[SourceFile, Callable[[], T]]] = deque()
        for file in files:
            is_small = file.size < small_bytes
            load = partial(read_one, file) if is_small else pool.submit(read_one, file).result
            waiting.append((file, load))
            if len(waiting) > at_once:
                yield waiting.popleft()
        yield from waiting

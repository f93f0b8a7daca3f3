"""Read Spark's event logs of any length: one file, or rolled into several, compressed or not.

    app-20261121230239-0000[.lz4|.snappy|.lzf|.zstd][.inprogress]
    eventlog_v2_app-20261121230239-0000/{appstatus_app-…, events_1_app-…, events_2_app-…[.compact]}

Applications that run for weeks leave gigabytes with a few lines about training: files are streamed, and
only events of training are kept. The state of an application carries over from one of its files to the
next.
"""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from stallscope.collector.sources.base import SourceFile
from stallscope.errors import StallscopeError, UnreadableError
from stallscope.run import Event, Problem

from ...files.ranges import opened
from ...files.unpacking import TRUNCATED, Unpacking, readable
from .events import BEGINNING, ApplicationEvents

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

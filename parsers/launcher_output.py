"""What launchers and loggers put before the lines of ranks: whose a line is, and when it came.

    [1,0]<stdout>:text                                        Open MPI: job and rank
    Sat Nov 21 02:28:01 2026[1,0]<stdout>:text                and when, in Open MPI 4
    [Sat Nov 21 02:28:03 2026][1,0]<stdout>: text             and in 5
    [0]<stdout>:text, Sat Nov 21 02:29:50 2026[0]<stdout>:text    horovodrun over Gloo
    [0] text                                                  MPICH -l
    2026-11-21 02:28:01,123 - STDOUT - INFO - [1,0]<stdout>:text  a logger around one of them

Prefixes stand before whatever a launcher has read at once, so in the middle of lines, too, and between
two pieces of a rank's line there may be pieces of others'. So the text is cut at every prefix and put
together rank by rank; only then it has lines. Of a line counts what a terminal shows of it in the end:
a progress bar is one line of megabytes, and all of it but what follows the last carriage return was
written over.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone

_BLOCK_BYTES = 4 << 20
# What is longer is no line that people read; stamps with names of loggers are far shorter.
_LONGEST_LINE = 64 << 10
_LONGEST_PREFIX = 160
# More ranks than any launcher has started; a damaged file may name any number of them.
_MOST_STREAMS = 1 << 14
# So many first lines tell whether each has MPICH's prefix.
_FIRST_LINES = 50
_MOST_OF_THEM = 0.8

_TAG = re.compile(rb"\[(?:\d{1,9},)?(\d{1,6})\]<(stdout|stderr|stddiag)>:")
_TAG_LITERAL = b"]<std"
# A prefix of MPICH's does not say which stream it is of.
_LABEL = re.compile(rb"\[(\d{1,6})\] ()")

# Other ones are damage, and none of today's clocks.
_YEARS = range(1970, 2200)
_MONTHS = b"Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split()
_CTIME = (
    rb"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) (?P<name>Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) "
    rb"(?P<day>[ \d]\d) (?P<time>\d\d:\d\d:\d\d) (?P<year>\d{4})"
)
_STAMPS = (
    re.compile(rb"[\s\[]{0,8}" + _CTIME),
    re.compile(
        rb"[\s\[]{0,8}(?P<year>\d{4})-(?P<month>\d\d)-(?P<day>\d\d)[T ](?P<time>\d\d:\d\d:\d\d)"
        rb"(?:[.,](?P<fraction>[ \d]{0,8}\d))?(?: ?(?P<zone>Z|[+-]\d\d:?\d\d))?"
    ),
    # Spark's log4j.
    re.compile(
        rb"[\s\[]{0,8}(?P<year>\d\d)/(?P<month>\d\d)/(?P<day>\d\d) (?P<time>\d\d:\d\d:\d\d)\b"
    ),
)
# How what stands before a tag may end: a time in words, or somebody's logger's prefix.
_ENDS_OF_PREFIXES = tuple(b"%c" % byte for byte in b"0123456789]) -:>|\t")
_STAMP_OF_TAG = re.compile(rb"\[?" + _CTIME + rb"\]?\Z")


@dataclass(frozen=True)
class Stamp:
    """When a line came: nanoseconds since 1970, of local time where the zone is not known."""

    ns: int
    zone_known: bool


@dataclass(frozen=True)
class Line:
    """What a terminal shows of a line in the end, without what a launcher put before it.

    A prefix of a logger's is still there.
    """

    #: None where no launcher says whose it is.
    rank: int | None
    stream: str
    text: bytes
    #: What may hold the stamp of when it came.
    before: bytes

    @property
    def stamp(self) -> Stamp | None:
        """When it came; None where that is not said."""
        return read_stamp(self.before)


def shown_lines(data: bytes, block_bytes: int = _BLOCK_BYTES) -> Iterator[Line]:
    """The lines of all ranks as they end, a last one without an end as well.

    Beyond the data this needs the memory of a block and of one line per rank.
    """
    tag = _tag_of(data)
    current = _Stream(None, "")
    streams = {(b"", b""): current}
    beyond = _Stream(None, "")
    for block in _blocks(data, block_bytes):
        at, stamp = 0, b""
        for found in tag.finditer(block) if tag is not None else ():
            text, next_stamp = _without_stamp(block[at : found.start()], at == 0)
            if text:
                yield from current.feed(text, stamp)
            key = (found[1], found[2])
            if key not in streams and len(streams) < _MOST_STREAMS:
                streams[key] = _Stream(int(key[0]), key[1].decode())
            current = streams.get(key, beyond)
            at, stamp = found.end(), next_stamp
        yield from current.feed(block[at:], stamp)
    for stream in streams.values():
        yield from stream.feed(b"\n", b"")


def read_stamp(text: bytes) -> Stamp | None:
    """The time that a text begins with; None where it begins with none."""
    for form in _STAMPS:
        found = form.match(text)
        if found is not None:
            return _stamp(found.groupdict())
    return None


class _Stream:
    """One rank's output, whose lines come in pieces."""

    def __init__(self, rank: int | None, name: str) -> None:
        self._rank = rank
        self._name = name
        # Of the line that has not ended: what may hold its stamp, and what is shown of it so far.
        self._beginning = b""
        self._unfinished: list[bytes] = []
        self._length = 0

    def feed(self, text: bytes, stamp: bytes) -> list[Line]:
        """Take a piece that came at one time; the lines that end in it."""
        *ended, rest = text.split(b"\n")
        lines = [self._line(piece, stamp) for piece in ended]
        if rest:
            self._beginning = self._beginning or rest[:_LONGEST_PREFIX]
            self._unfinished.append(rest)
            self._length += len(rest)
            if self._length > _LONGEST_LINE:
                self._shorten()
        return [line for line in lines if line.text]

    def _line(self, piece: bytes, stamp: bytes) -> Line:
        beginning = self._beginning or piece[:_LONGEST_PREFIX]
        shown = _shown(b"".join([*self._unfinished, piece]) if self._unfinished else piece)
        self._beginning, self._unfinished, self._length = b"", [], 0
        return Line(self._rank, self._name, shown, stamp or beginning)

    def _shorten(self) -> None:
        whole = b"".join(self._unfinished)
        # A carriage return at the end may belong to the end of the line.
        kept = _shown(whole) + (b"\r" if whole.endswith(b"\r") else b"")
        self._unfinished, self._length = [kept], 0


def _shown(line: bytes) -> bytes:
    """What follows the last carriage return, or the backspaces of a bar that has lost its own."""
    text = line.rstrip(b"\r").rpartition(b"\r")[2]
    return text.rpartition(b"\b")[2][:_LONGEST_LINE]


def _tag_of(data: bytes) -> re.Pattern[bytes] | None:
    """What stands before the pieces of ranks; None where nothing does."""
    if _TAG_LITERAL in data:
        return _TAG
    lines = [line for line in data[:_LONGEST_LINE].split(b"\n")[:_FIRST_LINES] if line.strip()]
    labelled = sum(_LABEL.match(line) is not None for line in lines)
    return _LABEL if labelled > _MOST_OF_THEM * len(lines) else None


def _blocks(data: bytes, block_bytes: int) -> Iterator[bytes]:
    """The data in pieces that end with a line, or else before what may be a prefix."""
    at = 0
    while at < len(data):
        until = at + block_bytes
        if until < len(data):
            until = (data.rfind(b"\n", at, until) + 1) or data.rfind(b"[", at + 1, until)
            until = until if until > at else at + block_bytes
        yield data[at:until]
        at = until


def _without_stamp(text: bytes, begins_line: bool) -> tuple[bytes, bytes]:
    """The text before a prefix without the stamp that belongs to the prefix, and the stamp."""
    if not text.endswith(_ENDS_OF_PREFIXES):
        return text, b""
    end = text[-_LONGEST_PREFIX:]
    found = _STAMP_OF_TAG.search(end)
    if found is not None:
        return text[: len(text) - len(found[0])], found[0]
    # What stands between the beginning of a line and its prefix is a logger's.
    line = end.rfind(b"\n") + 1
    if (line or begins_line) and read_stamp(end[line:]) is not None:
        return text[: len(text) - len(end) + line], end[line:]
    return text, b""


def _stamp(parts: dict[str, bytes]) -> Stamp | None:
    month = parts.get("month")
    year = int(parts["year"]) + (2000 if len(parts["year"]) == 2 else 0)
    if year not in _YEARS:
        return None
    number = int(month) if month is not None else _MONTHS.index(parts["name"]) + 1
    hour, minute, second = (int(part) for part in parts["time"].split(b":"))
    zone = parts.get("zone")
    try:
        moment = datetime(
            year,
            number,
            int(parts["day"]),
            hour,
            minute,
            second,
            tzinfo=_zone(zone),
        )
    except ValueError:
        return None
    # Horovod pads fractions with blanks.
    fraction = (parts.get("fraction") or b"0").replace(b" ", b"0").ljust(9, b"0")
    return Stamp(round(moment.timestamp()) * 10**9 + int(fraction), zone is not None)


def _zone(text: bytes | None) -> timezone:
    if text is None or text == b"Z":
        return UTC
    ahead = timedelta(hours=int(text[1:3]), minutes=int(text[-2:]))
    return timezone(-ahead if text[:1] == b"-" else ahead)

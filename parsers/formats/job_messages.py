"""Read messages on stalls, failures and ends: of Horovod, torchrun, NCCL, gloo, Slurm, Ray and others.

Most messages are one line, and a row of ``MESSAGES``. Two have several lines:

    [2026-11-21 02:28:41.236416: W /build/horovod/common/stall_inspector.cc:107] One or more tensors
    were submitted … and are waiting for remainder of ranks for more than 60 seconds. …
    Missing ranks:
    1: [grad_a, grad_b ...]
    3!: [grad_a]

Versions pad fractions with blanks, omit the time (HOROVOD_LOG_HIDE_TIME=1), put a rank before the
message, print ``Stalled ranks:``, and up to 0.15 a line for each tensor:

    Stalled ops:HorovodAllreduce_grads_0 [missing ranks: 1, 3]

torchrun prints a table, in which the first failure comes last:

    Root Cause (first observed failure):
    [0]:
      time      : 2026-11-21_02:28:01
      host      : gpu-2
      rank      : 3 (local_rank: 3)
      exitcode  : -9 (pid: 1237)
      traceback : Signal 9 (SIGKILL) received by PID 1237

Timestamps are local time of an unknown zone.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import ClassVar

from stallscope.formatting.lists import counted, ranks_in_words
from stallscope.run import Event

from ..base import Contents, EmbeddedFormat
from ..launcher_output import Line, LineFilter, labels_of, rank_lines
from ..lines.line_blocks import Needle, contains_any
from ..lines.timestamps import Timestamp, assumed_year, latest_ns, read_dated, read_timestamp
from .job_message_rows import MESSAGES, STALL_NEEDLES, TABLE_NEEDLES, UNNAMED, Message

_NEEDLES = tuple(dict.fromkeys((*STALL_NEEDLES, *(row.needle for row in MESSAGES))))
# A file without any of these has no message.
_GATE = tuple(map(Needle, (*_NEEDLES, TABLE_NEEDLES[0])))
_HEAD = re.compile(
    rb"\[(?:(?P<time>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.[ \d]{6}): )?[TDIWEF] [^\]]*:\d+\] "
    rb"(?:\[\d+\]: )?"
)
_STALL = re.compile(rb"waiting for remainder of ranks for more than (\d{1,9}) seconds")
_OF_RANK = re.compile(rb"^(?:(?:Missing|Stalled) ranks:\s*)?(\d{1,6})(!?): \[(.*?)\]")
_OF_TENSOR = re.compile(rb"^(?:Stalled ops:)?\s*([^\s\[]+) \[missing ranks: ([\d, ]+)\]")
_HEADING = re.compile(rb"^(?:Missing ranks|Stalled ranks|Stalled ops):")
_FIELD = re.compile(rb"^\s*(time|host|rank|exitcode|traceback)\s*: (.{0,300})")
_EXIT = re.compile(rb"(-?\d{1,6}) \(pid: (\d{1,9})\)")
_ROOT = b"Root Cause (first observed failure):"
# PyTorch's own label, and glog's time after it; a month before October has one digit.
_GLOBAL_RANK = re.compile(rb"\[rank(\d{1,6})\]:")
_GLOG = re.compile(rb"\[?([EWIF])(\d{3,4}) (\d\d:\d\d:\d\d(?:\.\d{1,9})?)")
_TIME_BYTES = 200
# The nouns of numbers.
_COUNTED = {"workers": "worker", "slots": "slot", "resets": "time"}
_MOST_TENSORS = 6
# Lines about steps, of which a few may be printed late.
_STEP_LINE = re.compile(
    rb"(?i)(?<!\*\*\* )(?:steps?|iter(?:ation)?s?|itrs?|epochs?|batch(?:es)?|updates?|loss(?:es)?)"
    rb"\]?[\"']?[ :=#\[]{1,12}\d|\[ {0,6}\d{1,9}/\d{1,9}\]|\d/\d{1,9} \[\d+:\d\d"
)
_MOST_LATE = 10
# Lines that a program prints when it starts, of which so many come again when it starts again.
_START_BYTES, _FEWEST_OF_START = 64 << 10, 2
_BEGUN = re.compile(rb"%b|(?:traceback|error)\b" % _STEP_LINE.pattern)
_TROUBLE = re.compile(rb"(?i)traceback|error|warning|\A\s")
_NOT_WORDS = re.compile(rb"[^a-zA-Z]+")
# Messages are searched for in so many bytes; labels may have cut a few. Longer lists are damage.
_BEFORE_BYTES, _MOST_MISSED, _MOST_RANKS = 64 << 20, 20, 1 << 14
# The same message at another time is another event.
_APART_NS = 3_600 * 10**9
# Messages that are quoted where a text has no steps.
_MOST_QUOTED = 3
_MESSAGE_KINDS = frozenset({"stall", *(row.kind for row in MESSAGES)})


class JobMessagesFormat(EmbeddedFormat):
    name: ClassVar[str] = "job-messages"
    title: ClassVar[str] = "messages on stalls, failures and ends"

    def read(self, path: str, data: bytes) -> Contents:
        return Contents(events=tuple(job_events(path, data)))


def job_events(path: str, data: bytes) -> list[Event]:
    """Return the events in a file, in order; equal messages of several ranks are one."""
    if not contains_any(data, _GATE):
        return []
    labels = labels_of(data)
    reader = _Reader(path, labelled=labels is not None and not labels.local)
    for line in rank_lines(data, only=_FILTER):
        reader.add(line)
    return reader.events(data)


def in_words(events: Sequence[Event]) -> str:
    """Quote the first messages of files without steps; empty if there is none."""
    messages = [event for event in events if event.kind in _MESSAGE_KINDS]
    quoted = [_quoted(event) for event in messages[:_MOST_QUOTED]]
    more = len(messages) - len(quoted)
    return "; ".join([*quoted, f"{counted(more, 'more message')}"] if more else quoted)


def _quoted(event: Event) -> str:
    """Write a message with its ranks, unless it names them, and how long it had lasted."""
    ranks = ranks_in_words(event.ranks) if event.ranks else ""
    of_ranks = f" ({ranks})" if ranks and ranks not in event.what else ""
    lasted = f" after {event.waited_ns / 1e9:,.0f} s" if event.kind == "collective_timeout" else ""
    return f"{event.what}{lasted}{of_ranks}"


@dataclass
class _Reader:
    """The messages of a file so far.

    Args:
        path: the file.
        labelled: whether the ranks of lines are those of the whole job.
    """

    path: str
    labelled: bool
    #: Events, or stalls that become events, with the text by which the file is searched for them.
    _entries: list[tuple[Event | _Stall, bytes]] = field(default_factory=list)
    _stalls: dict[tuple[int | None, str], _Stall] = field(default_factory=dict)
    _tables: dict[tuple[int | None, str], _Table] = field(default_factory=dict)

    def add(self, line: Line) -> None:
        """Add the next line."""
        key = (line.rank, line.stream)
        timestamp, message = _split_message(line)
        seconds = _STALL.search(message)
        table = self._tables.setdefault(key, _Table())
        if seconds is not None:
            self._stalls[key] = _Stall(self.path, int(seconds[1]), timestamp)
            self._entries.append((self._stalls[key], b""))
        elif key in self._stalls and self._stalls[key].continues(message):
            return
        elif table.continues(line.text, len(self._entries)):
            is_first, event = table.is_first, table.event(self.path)
            if event is not None:
                at = table.starts_at if is_first else len(self._entries)
                self._entries.insert(at, (event, line.text))
        else:
            self._add_one_line(line, message, timestamp)

    def _add_one_line(self, line: Line, message: bytes, timestamp: Timestamp | None) -> None:
        for row in MESSAGES:
            match = row.form.search(message) if row.needle in message else None
            if match is not None:
                rank = line.rank if self.labelled else None
                label = _GLOBAL_RANK.search(line.text[:_TIME_BYTES])
                if label is not None:
                    rank = int(label[1])
                event = _event_of(self.path, row, match, timestamp or _in_text(line.text), rank)
                self._entries.append((event, match[0]))
                return

    def events(self, data: bytes) -> list[Event]:
        """Return the events; ``data`` is the whole file.

        A shell's word alone is none if the training goes on.
        """
        events = [
            entry.event() if isinstance(entry, _Stall) else entry for entry, _ in self._entries
        ]
        followed = _followed_by_steps([text for _, text in self._entries], data)
        return _without_repeated(
            [
                replace(event, followed=is_followed) if is_followed else event
                for event, is_followed in zip(events, followed, strict=True)
                if not (is_followed and event.what.startswith(UNNAMED))
            ]
        )


def _followed_by_steps(texts: Sequence[bytes], data: bytes) -> list[bool]:
    """Return for each message whether more lines about steps follow it than may be printed late.

    Behind lines that the program printed at its start as well, any are enough.

    Args:
        texts: the messages in order; empty for one without a text.
        data: the whole file.
    """
    at, late, missed, followed = len(data), 0, 0, list[bool]()
    head = data[:_START_BYTES]
    start = _words(head[: begun.start() if (begun := _BEGUN.search(head)) else len(head)])
    for text in reversed(texts):
        begin = -1
        if text and late <= _MOST_LATE and missed < _MOST_MISSED:
            begin = data.rfind(text, max(at - _BEFORE_BYTES, 0), at)
            missed += begin < 0
        if begin >= 0:
            late += sum(1 for _ in islice(_STEP_LINE.finditer(data, begin, at), _MOST_LATE + 1))
            at = begin
            step = _STEP_LINE.search(data, begin) if 0 < late <= _MOST_LATE else None
            again = start & _words(data[begin : step.start()][-_START_BYTES:]) if step else ()
            late = _MOST_LATE + 1 if len(again) >= _FEWEST_OF_START else late
        followed.append(late > _MOST_LATE)
    return followed[::-1]


def _words(text: bytes) -> set[bytes]:
    """Return the words of lines that are not about trouble and have two or more."""
    lines = (_NOT_WORDS.sub(b" ", line) for line in text.splitlines() if not _TROUBLE.search(line))
    return {words for line in lines if b" " in (words := line.strip())}


def _without_repeated(events: Iterable[Event]) -> list[Event]:
    """Join equal messages of several ranks, and a process's message with its row in a table."""
    in_tables = {pid for event in events if event.ranks for pid in event.pids}
    joined: list[Event] = []
    places: dict[tuple[str, str], int] = {}
    for event in events:
        if event.pids and not event.ranks and {*event.pids} <= in_tables:
            continue
        key = (event.kind, event.what)
        at = places.get(key)
        if at is None or event.kind in _SEVERAL or _is_later(joined[at], event):
            places[key] = len(joined)
            joined.append(event)
        else:
            joined[at] = _both_of(joined[at], event)
    return joined


# Warnings, of which each counts.
_SEVERAL = ("stall", "stall_shutdown", "cache_eviction", "workers_reset", "waiting_for_slots")


def _is_later(event: Event, repeated: Event) -> bool:
    if event.local_ns is None or repeated.local_ns is None:
        return False
    return repeated.local_ns - event.local_ns > _APART_NS


def _both_of(event: Event, repeated: Event) -> Event:
    return replace(
        event,
        ranks=tuple(sorted({*event.ranks, *repeated.ranks})),
        hosts=tuple(sorted({*event.hosts, *repeated.hosts})),
        pids=tuple(sorted({*event.pids, *repeated.pids})),
        waited_ns=max(event.waited_ns, repeated.waited_ns),
        followed=event.followed and repeated.followed,
    )


# -- messages of several lines ---------------------------------------------------------------------


@dataclass
class _Stall:
    """A warning of Horovod's stall inspector, line by line."""

    path: str
    seconds: int
    timestamp: Timestamp | None
    #: By missing rank, the first tensors that wait for it.
    missing: dict[int, list[str]] = field(default_factory=dict)

    def continues(self, line: bytes) -> bool:
        """Add a line if it belongs to the warning, and return whether it does."""
        of_rank = _OF_RANK.match(line)
        if of_rank is not None:
            names = of_rank[3].decode("utf-8", "replace").removesuffix(" ...").split(", ")
            self.missing.setdefault(int(of_rank[1]), []).extend(names)
            return True
        of_tensor = _OF_TENSOR.match(line)
        if of_tensor is not None:
            for rank in of_tensor[2].split(b","):
                if rank.strip():
                    name = of_tensor[1].decode("utf-8", "replace")
                    self.missing.setdefault(int(rank), []).append(name)
            return True
        return _HEADING.match(line) is not None

    def event(self) -> Event:
        ranks = tuple(sorted(self.missing))
        names = list(dict.fromkeys(name for rank in ranks for name in self.missing[rank]))
        waiting = f"tensors wait for more than {self.seconds} s"
        for_whom = f" for {ranks_in_words(ranks)}" if ranks else ""
        which = f": {', '.join(names[:_MOST_TENSORS])}" if names else ""
        event = _event(self.path, "stall", waiting + for_whom + which, self.timestamp)
        return replace(event, ranks=ranks, waited_ns=self.seconds * 10**9)


@dataclass
class _Table:
    """A failure in torchrun's table, line by line."""

    fields: dict[bytes, bytes] = field(default_factory=dict)
    is_first: bool = False
    #: The number of events before the table.
    starts_at: int = 0

    def continues(self, line: bytes, events: int) -> bool:
        """Add a line if it belongs to a table, and return whether it does.

        Args:
            line: the line.
            events: the number of events before it.
        """
        if line.strip() == b"Failures:":
            self.starts_at = events
            return True
        if _ROOT in line:
            self.is_first, self.fields = True, {}
            return True
        row = _FIELD.search(_GLOBAL_RANK.sub(b"", line))
        if row is None or (row[1] != b"time" and not self.fields):
            return False
        if row[1] == b"time":
            self.fields = {}
        self.fields[row[1]] = row[2].strip()
        return True

    def event(self, path: str) -> Event | None:
        """Return the failure if it is complete, once."""
        status = _EXIT.match(self.fields.get(b"exitcode", b""))
        rank = re.match(rb"\d{1,6}", self.fields.get(b"rank", b""))
        if status is None or rank is None or b"traceback" not in self.fields:
            return None
        host = self.fields.get(b"host", b"").decode("utf-8", "replace")
        first = ", the first failure" if self.is_first else ""
        what = f"rank {int(rank[0])} exited with status {_status(int(status[1]))}{first}"
        time = read_timestamp(self.fields[b"time"].replace(b"_", b" "))
        self.fields, self.is_first = {}, False
        return replace(
            _event(path, "rank_exited", what, time),
            ranks=(int(rank[0]),),
            hosts=(host,) if host else (),
            pids=(int(status[2]),),
            status=int(status[1]),
        )


def _status(status: int) -> str:
    """Write an exit status, with the signal that it stands for."""
    number = -status if status < 0 else status - 128
    try:
        return f"{status} ({signal.Signals(number).name})"
    except ValueError:
        return str(status)


# -- messages of a line ----------------------------------------------------------------------------


def _event_of(
    path: str, row: Message, match: re.Match[bytes], timestamp: Timestamp | None, rank: int | None
) -> Event:
    """Make the event of a message.

    Args:
        path: the file.
        row: the kind of message.
        match: its groups become words and fields of the event.
        timestamp: when the line was printed.
        rank: the rank that printed it, by its label.
    """
    parts = {
        name: text.decode("ascii", "replace")
        for name, text in match.groupdict().items()
        if text is not None
    }
    ranks = _numbers(parts.get("ranks") or parts.get("rank") or "")
    if rank is not None and row.by_printer and "ranks" not in parts:
        # A process group has ranks of its own.
        ranks = (rank,)
    words = {
        name: counted(int(parts[name]), noun) for name, noun in _COUNTED.items() if name in parts
    }
    milliseconds = int(parts.get("ms", 0))
    words["seconds"] = f"{milliseconds / 1e3:,.0f}"
    printed = read_timestamp(match["time"]) if "time" in parts else None
    event = _event(path, row.kind, row.what.format(**{**parts, **words}), printed or timestamp)
    return replace(
        event,
        ranks=ranks,
        hosts=(parts["host"],) if "host" in parts else (),
        pids=(int(parts["pid"]),) if "pid" in parts else (),
        status=int(parts["n"]) if row.kind == "rank_exited" and "n" in parts else None,
        waited_ns=milliseconds * 10**6,
    )


def _numbers(text: str) -> tuple[int, ...]:
    """Read numbers and ranges: ``0-3,7`` or ``4, 5``."""
    numbers: set[int] = set()
    for first, last in re.findall(r"(\d{1,6})(?:-(\d{1,6}))?", text):
        end = min(int(last or first), int(first) + _MOST_RANKS - len(numbers) - 1)
        numbers |= {*range(int(first), end + 1)}
    return tuple(sorted(numbers))


def _event(path: str, kind: str, what: str, timestamp: Timestamp | None) -> Event:
    known = timestamp is not None and timestamp.zone_known
    return Event(
        kind=kind,
        where=path,
        what=what,
        wall_ns=timestamp.ns if timestamp is not None and known else None,
        local_ns=timestamp.ns if timestamp is not None and not known else None,
        uncertainty_ns=0 if timestamp is None else timestamp.resolution_ns,
    )


def _split_message(line: Line) -> tuple[Timestamp | None, bytes]:
    """Return the time of a line, and its text after Horovod's prefix."""
    head = _HEAD.search(line.text)
    if head is None:
        return line.timestamp, line.text
    timestamp = None if head["time"] is None else read_timestamp(head["time"])
    return timestamp or line.timestamp, line.text[head.end() :]


def _in_text(text: bytes) -> Timestamp | None:
    """Read glog's time near the start of a line, in the latest year that is possible."""
    match = _GLOG.search(text[:_TIME_BYTES])
    if match is None:
        return read_dated(text)
    stamp = b"%b%04d %b" % (match[1], int(match[2]), match[3])
    timestamp = read_dated(stamp)
    if timestamp is None or timestamp.year_known:
        return timestamp
    year = assumed_year(timestamp, latest_ns())
    return read_dated(b"%b%04d%b" % (match[1], year, stamp[1:]))


def _may_matter(line: bytes) -> bool:
    return (
        any(needle in line for needle in (*_NEEDLES, *TABLE_NEEDLES))
        or _OF_RANK.match(line) is not None
        or b"[missing ranks: " in line
    )


_FILTER = LineFilter((*_NEEDLES, *TABLE_NEEDLES, b": [", b"[missing ranks: "), _may_matter)

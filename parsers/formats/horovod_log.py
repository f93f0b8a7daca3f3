"""Read messages of Horovod, its launchers and torchrun: stalls, evictions, dead ranks, resets.

    [2026-11-21 02:28:41.236416: W /build/horovod/common/stall_inspector.cc:107] One or more tensors
    were submitted … and are waiting for remainder of ranks for more than 60 seconds. …
    Missing ranks:
    1: [grad_a, grad_b ...]
    3!: [grad_a]

Versions pad fractions with blanks, omit the time (HOROVOD_LOG_HIDE_TIME=1), put a rank before the
message, print ``Stalled ranks:``, and up to 0.15 a line for each tensor:

    Stalled ops:HorovodAllreduce_grads_0 [missing ranks: 1, 3]

Timestamps are local time of an unknown zone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from stallscope.formatting.lists import counted, ranks_in_words
from stallscope.run import Event

from ..base import Contents, EmbeddedFormat
from ..launcher_output import Line, LineFilter, rank_lines
from ..lines.line_blocks import Needle, contains_any
from ..lines.timestamps import Timestamp, read_timestamp

# Each message contains one of these, and no other log does.
_NEEDLES = (
    b"waiting for remainder of ranks",
    b"Missing ranks:",
    b"Stalled ranks:",
    b"Stalled ops:",
    b"is stalled for longer than",
    b"has been evicted from cache",
    b" exit with status code ",
    b") local_rank: ",
    b"blacklist failing host: ",
    b"reset workers: ",
    b"wait for available slots: ",
    b" has exceeded limit ",
)
_MESSAGE = re.compile(
    rb"\[(?:(?P<time>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.[ \d]{6}): )?[TDIWEF] [^\]]*:\d+\] "
    rb"(?:\[\d+\]: )?"
)
_STALL = re.compile(rb"waiting for remainder of ranks for more than (\d{1,9}) seconds")
_OF_RANK = re.compile(rb"^(?:(?:Missing|Stalled) ranks:\s*)?(\d{1,6})(!?): \[(.*?)\]")
_OF_TENSOR = re.compile(rb"^(?:Stalled ops:)?\s*([^\s\[]+) \[missing ranks: ([\d, ]+)\]")
_HEADING = re.compile(rb"^(?:Missing ranks|Stalled ranks|Stalled ops):")
_ONE_LINERS: tuple[tuple[re.Pattern[bytes], str, str], ...] = (
    (
        re.compile(rb"is stalled for longer than (?P<n>\d{1,9}) seconds\. Will shutdown"),
        "stall_shutdown",
        "Horovod shuts the job down: ranks are stalled for longer than {n} s",
    ),
    (
        re.compile(rb"response has been evicted from cache"),
        "cache_eviction",
        "a response was evicted from Horovod's cache",
    ),
    (
        re.compile(rb"Process (?P<rank>\d{1,6}) exit with status code (?P<n>-?[1-9]\d{0,5})\b"),
        "rank_exited",
        "rank {rank} exited with status {n}",
    ),
    (
        # torchrun, which then restarts or ends the other processes.
        re.compile(
            rb"failed \(exitcode: (?P<n>-?[1-9]\d{0,5})\) local_rank: \d{1,6} \(pid: (?P<pid>\d{1,9})\)"
        ),
        "rank_exited",
        "process {pid} exited with status {n}",
    ),
    (
        re.compile(rb"blacklist failing host: (?P<host>[\w.:-]{1,255})"),
        "host_blacklisted",
        "host {host} failed, and gets no more work",
    ),
    (
        re.compile(rb"\breset workers: (?P<workers>\d{1,6})\b"),
        "workers_reset",
        "the job restarts with {workers}",
    ),
    (
        re.compile(rb"\bwait for available slots: (?P<slots>\d{1,6})\b"),
        "waiting_for_slots",
        "the job waits for {slots}",
    ),
    (
        re.compile(rb"reset count (?P<resets>\d{1,6}) has exceeded limit \d+"),
        "resets_exceeded",
        "the job ends: it was reset {resets}",
    ),
)
# The nouns of numbers.
_COUNTED = {"workers": "worker", "slots": "slot", "resets": "time"}
_MOST_TENSORS = 6


class HorovodLogFormat(EmbeddedFormat):
    name: ClassVar[str] = "horovod-log"
    title: ClassVar[str] = "stalls and restarts from Horovod and its launcher"

    def read(self, path: str, data: bytes) -> Contents:
        return Contents(events=tuple(horovod_events(path, data)))


def horovod_events(path: str, data: bytes) -> list[Event]:
    """Return the events in a file, in order."""
    if not contains_any(data, [*map(Needle, _NEEDLES)]):
        return []
    stalls: dict[tuple[int | None, str], _Stall] = {}
    events: list[Event | _Stall] = []
    for line in rank_lines(data, only=_FILTER):
        key = (line.rank, line.stream)
        timestamp, message = _split_message(line)
        seconds = _STALL.search(message)
        if seconds is not None:
            stalls[key] = _Stall(path, int(seconds[1]), timestamp)
            events.append(stalls[key])
        elif key in stalls and stalls[key].continues(message):
            continue
        else:
            events += _one_liners(path, message, timestamp)
    return [event.event() if isinstance(event, _Stall) else event for event in events]


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
        return _event(
            self.path,
            "stall",
            waiting + for_whom + which,
            self.timestamp,
            ranks,
            seconds=self.seconds,
        )


def _one_liners(path: str, message: bytes, timestamp: Timestamp | None) -> Iterator[Event]:
    for form, kind, words in _ONE_LINERS:
        match = form.search(message)
        if match is None:
            continue
        parts = {name: text.decode("ascii", "replace") for name, text in match.groupdict().items()}
        ranks = (int(parts["rank"]),) if "rank" in parts else ()
        hosts = (parts["host"],) if "host" in parts else ()
        pids = (int(parts["pid"]),) if "pid" in parts else ()
        status = int(parts["n"]) if kind == "rank_exited" else None
        numbers = {
            name: counted(int(parts[name]), noun)
            for name, noun in _COUNTED.items()
            if name in parts
        }
        what = words.format(**parts | numbers)
        yield _event(path, kind, what, timestamp, ranks, hosts, pids=pids, status=status)
        return


def _event(
    path: str,
    kind: str,
    what: str,
    timestamp: Timestamp | None,
    ranks: tuple[int, ...] = (),
    hosts: tuple[str, ...] = (),
    *,
    pids: tuple[int, ...] = (),
    status: int | None = None,
    seconds: int = 0,
) -> Event:
    known = timestamp is not None and timestamp.zone_known
    return Event(
        kind=kind,
        where=path,
        what=what,
        ranks=ranks,
        hosts=hosts,
        wall_ns=timestamp.ns if timestamp is not None and known else None,
        local_ns=timestamp.ns if timestamp is not None and not known else None,
        uncertainty_ns=0 if timestamp is None else timestamp.resolution_ns,
        waited_ns=seconds * 10**9,
        pids=pids,
        status=status,
    )


def _split_message(line: Line) -> tuple[Timestamp | None, bytes]:
    """Return the time of a line, and its text after Horovod's prefix."""
    head = _MESSAGE.search(line.text)
    if head is None:
        return line.timestamp, line.text
    timestamp = None if head["time"] is None else read_timestamp(head["time"])
    return timestamp or line.timestamp, line.text[head.end() :]


def _may_matter(line: bytes) -> bool:
    return (
        any(needle in line for needle in _NEEDLES)
        or _OF_RANK.match(line) is not None
        or b"[missing ranks: " in line
    )


_FILTER = LineFilter((*_NEEDLES, b": [", b"[missing ranks: "), _may_matter)

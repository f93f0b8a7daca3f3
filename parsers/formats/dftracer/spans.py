"""Read the spans of a trace: a regular expression finds all, and those that may make steps are kept.

A trace may have gigabytes, mostly of single reads. Times are microseconds since 1970, or in the unit of
``time_metric``.
"""

from __future__ import annotations

import re
from array import array
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np

from stallscope.arrays.types import Ints

# Numbers are strings in version 0; the phase of a span is "X", and 1 from version 2 on.
SPAN = re.compile(
    rb'"name":"(?P<name>[^"\\\n]{1,200})","cat":"[^"\\\n]{0,100}",(?:"type":\d{1,3},)?'
    rb'"pid":"?(?P<pid>\d{1,10})"?,"tid":"?(?P<tid>\d{1,12})"?,'
    rb'"ts":"?(?P<ts>\d{1,19})"?,"dur":"?(?P<dur>\d{1,18})"?,"ph":(?:"X"|1\b)'
)
_EPOCH = re.compile(rb'"epoch":"?(\d{1,9})\b')
_HOST = re.compile(rb'"(?:hostname|hhash)":"([^"\\]{1,255})"')
_HASHED_HOST = re.compile(
    rb'"name":"HH"[^\n]{0,200}?"name":"([^"\\\n]{1,255})","value":"(\w{1,64})"'
)
_UNIT = re.compile(rb'"time_metric","value":"(NS|US|MS|S)"')
_NS = {b"NS": 1, b"US": 1_000, b"MS": 10**6, b"S": 10**9}
# Traces describe themselves at their start.
_HEAD_BYTES = 1 << 20
_LATEST_NS = 2**62
_MOST_ARGUMENTS = 1000
_MOST_NAMES = 5

#: Names of spans that may make steps.
LOOP = re.compile(r"(?P<loop>.{1,180})\.(?P<part>iter|block|yield)")
EPOCH = re.compile(r"(?:.{0,100}\.)?epoch(?:\.(?:block|yield))?", re.IGNORECASE)
EVALUATION = re.compile(
    r"(?:.{0,100}[._])?(?:eval|evaluate|validate|validation|test)", re.IGNORECASE
)
FETCH = re.compile(
    r"(?:.{0,100}[._])?(?:fetch|prefetch|next|load_?batch|get_?batch|next_?batch)", re.IGNORECASE
)
COMPUTE = re.compile(
    r"(?:.{0,100}[._])?(?:compute|train_?step|training_?step|train_?batch)", re.IGNORECASE
)


class Stream(NamedTuple):
    """The spans of one name on one thread."""

    pid: int
    tid: int
    name: str


@dataclass
class Spans:
    """Spans of one stream, nanoseconds on the trace's clock; as arrays in the order of their starts."""

    starts: array[int] = field(default_factory=lambda: array("q"))
    lengths: array[int] = field(default_factory=lambda: array("q"))
    #: -1 where unknown.
    epochs: array[int] = field(default_factory=lambda: array("q"))

    def __len__(self) -> int:
        return len(self.starts)

    def add(self, start: int, length: int, epoch: int) -> None:
        """Add a span."""
        self.starts.append(start)
        self.lengths.append(length)
        self.epochs.append(epoch)

    @cached_property
    def _order(self) -> Ints:
        return np.argsort(np.asarray(self.starts), kind="stable")

    @cached_property
    def begin(self) -> Ints:
        return np.asarray(self.starts, np.int64)[self._order]

    @cached_property
    def end(self) -> Ints:
        return self.begin + np.asarray(self.lengths, np.int64)[self._order]

    @cached_property
    def epoch(self) -> Ints:
        return np.asarray(self.epochs, np.int64)[self._order]


@dataclass
class StepSpans:
    """The spans of a file that may make steps, and the totals of all spans."""

    #: The trace's unit, nanoseconds.
    unit_ns: int
    spans: dict[Stream, Spans] = field(default_factory=lambda: defaultdict(Spans))
    #: Hosts by process, if spans name them.
    hosts: dict[int, str] = field(default_factory=dict)
    #: The total time of spans by name, in the trace's unit, and their number.
    totals: Counter[bytes] = field(default_factory=Counter)
    counts: Counter[bytes] = field(default_factory=Counter)

    @property
    def processes(self) -> list[int]:
        """Return the processes with spans that may make steps."""
        return sorted({stream.pid for stream in self.spans})

    def named(self, pid: int, form: re.Pattern[str]) -> dict[Stream, Spans]:
        """Return the spans of a process with matching names."""
        return {
            stream: spans
            for stream, spans in self.spans.items()
            if stream.pid == pid and form.fullmatch(stream.name)
        }

    @property
    def summary(self) -> str:
        """Describe the trace by the names with the most time."""
        names = [
            f"{name.decode('utf-8', 'replace')} ({self.counts[name]:,} in "
            f"{total * self.unit_ns / 1e9:.3g} s)"
            for name, total in self.totals.most_common(_MOST_NAMES)
        ]
        rest = len(self.totals) - len(names)
        return ", ".join(names) + (f" and {rest:,} more" if rest else "")

    def add(self, match: re.Match[bytes]) -> None:
        """Add a span; its arguments follow in its line."""
        name, length = match["name"], int(match["dur"])
        self.totals[name] += length
        self.counts[name] += 1
        start = int(match["ts"])
        if not _may_make_steps(name) or (start + length) * self.unit_ns > _LATEST_NS:
            return
        pid = int(match["pid"])
        args = match.string[match.end() : match.end() + _MOST_ARGUMENTS].partition(b"\n")[0]
        epoch = _EPOCH.search(args)
        stream = Stream(pid, int(match["tid"]), name.decode("utf-8", "replace"))
        self.spans[stream].add(
            start * self.unit_ns, length * self.unit_ns, int(epoch[1]) if epoch else -1
        )
        if pid not in self.hosts and (host := _HOST.search(args)):
            self.hosts[pid] = host[1].decode("utf-8", "replace")


def trace_in(data: bytes) -> StepSpans:
    """Read the spans in a file."""
    unit = _UNIT.search(data, 0, _HEAD_BYTES)
    trace = StepSpans(_NS[unit[1]] if unit else 1_000)
    for match in SPAN.finditer(data):
        trace.add(match)
    named = {
        hashed[2].decode(): hashed[1].decode("utf-8", "replace")
        for hashed in _HASHED_HOST.finditer(data)
    }
    trace.hosts = {pid: named.get(host, host) for pid, host in trace.hosts.items()}
    return trace


@lru_cache(maxsize=10_000)
def _may_make_steps(name: bytes) -> bool:
    text = name.decode("utf-8", "replace")
    return any(form.fullmatch(text) for form in (LOOP, EPOCH, EVALUATION, FETCH, COMPUTE))

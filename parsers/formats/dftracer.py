"""Read traces of DFTracer: a log of each process with steps."""

from __future__ import annotations

import re
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import product
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa

from stallscope.arrays import arrow
from stallscope.arrays.types import Bools, Ints
from stallscope.errors import UnreadableError
from stallscope.run import Log, Problem

from ..base import INTERVAL_ROWS, STEP_ROWS, Contents, Parsed, Parser, table_of
from ..rank_names import rank_in

KNOWN_FROM = "traces of DFTracer"
_START = re.compile(rb'[\s\[]{0,16}\{"(?:id|name)":')
_RANK = re.compile(
    rb'"name":"PR"[^\n]{0,80}?"pid":"?(\d{1,10})\b[^\n]{0,200}?"name":"rank","value":"?(\d{1,6})\b'
)
# DFTracer's names for files of ranks: trace-3-of-8.pfw.
_IN_NAME = re.compile(r"(?:^|[/._-])(\d{1,6})-of-(\d{1,6})(?![0-9])")
_SINCE_1970_NS = 10**18
_NUMBERED = "the trace has no ranks of its processes; they are numbered in the order of their ids"
# Spans of two kinds alternate if this share of them does.
_ALTERNATING = 0.95
_FEWEST = 2
# Times are rounded to the trace's unit.
_ROUNDED = 2
# If there are more names, the most frequent ones are tried.
_MOST_STREAMS = 20

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


class DftracerParser(Parser):
    name: ClassVar[str] = "dftracer"
    title: ClassVar[str] = "traces of DFTracer"
    suffix: ClassVar[str] = ".pfw"

    def recognises(self, file_name: str, head: bytes) -> bool:
        return _START.match(head) is not None and SPAN.search(head) is not None

    def parse(self, path: str, data: bytes) -> Parsed:
        trace = trace_in(data)
        every = {pid: steps_of(trace, pid) for pid in trace.processes}
        steps = {pid: of_process for pid, of_process in every.items() if of_process is not None}
        if not steps:
            contents = trace.summary or "none"
            raise UnreadableError(
                f"{path}: a trace of DFTracer without a loop over batches; its spans: {contents}"
            )
        ranks, problems = _ranks(path, data, [*steps])
        in_name = _IN_NAME.search(path)
        size = int(in_name[2]) if in_name else None
        whole = data.rstrip().endswith((b"]", b"}"))
        first, *more = (
            _log(path, trace, pid, rank, steps[pid], {"size": size}, ended=whole)
            for pid, rank in ranks.items()
        )
        log = replace(first.log, size=len(data))
        return replace(first, log=log, more=tuple(more), problems=problems)

    def read(self, path: str, data: bytes) -> Contents:
        parsed = self.parse(path, data)
        return Contents((parsed, *parsed.more), is_trace=True)


def _ranks(
    path: str, data: bytes, processes: Sequence[int]
) -> tuple[Mapping[int, int], tuple[Problem, ...]]:
    """Return the rank of each process, and a problem if ranks are unknown."""
    stated = {int(match[1]): int(match[2]) for match in _RANK.finditer(data)}
    if all(pid in stated for pid in processes):
        return {pid: stated[pid] for pid in processes}, ()
    if len(processes) == 1:
        in_name = _IN_NAME.search(path)
        rank = int(in_name[1]) if in_name else rank_in(path).rank
        return {processes[0]: rank or 0}, ()
    numbered = {pid: rank for rank, pid in enumerate(processes)}
    known = [*numbered.values()] == [*numbered]
    return numbered, () if known else (Problem(path, _NUMBERED),)


def _log(
    path: str,
    trace: StepSpans,
    pid: int,
    rank: int,
    steps: Steps,
    known: Mapping[str, Any],
    *,
    ended: bool,
) -> Parsed:
    steps, evaluations = without_evaluations(trace, pid, steps)
    epochs = epochs_of(trace, pid)
    start = int(steps.begin[0])
    facts: dict[str, Any] = {**known, "known_from": KNOWN_FROM, "host": trace.hosts.get(pid)}
    if start > _SINCE_1970_NS:
        facts["anchor"] = {"monotonic_ns": start, "wall_ns": start}
    facts = {name: value for name, value in facts.items() if value is not None}
    return Parsed(
        log=Log(path, rank, 0, 0, facts, ended),
        run_id="",
        steps=_steps_table(rank, steps, epochs),
        intervals=_intervals_table(rank, steps, epochs, evaluations),
    )


def _steps_table(rank: int, steps: Steps, epochs: Between) -> pa.Table:
    count = len(steps.begin)
    epoch = _epochs(steps, epochs)
    columns = {
        "generation": np.zeros(count, np.int32),
        "rank": np.full(count, rank),
        "step": np.arange(count),
        "epoch": arrow.array(epoch, null=epoch < 0),
        "begin": steps.begin,
        "data": steps.data,
        "end": steps.end,
        "micro": np.ones(count, np.int32),
    }
    return table_of(STEP_ROWS, columns)


def _epochs(steps: Steps, epochs: Between) -> Ints:
    """Return the epochs of steps, counted from 0: those in their arguments, or those around them."""
    if len(steps.epoch) and (steps.epoch >= 0).all():
        return steps.epoch - int(steps.epoch.min() == 1)
    at = np.searchsorted(epochs.begin, steps.begin, side="right") - 1
    inside = at >= 0
    if len(epochs.end):
        inside &= steps.begin < epochs.end[np.maximum(at, 0)]
    return np.where(inside, at, -1)


def _intervals_table(rank: int, steps: Steps, epochs: Between, evaluations: Between) -> pa.Table:
    begin = np.concatenate([epochs.begin, evaluations.begin])
    kinds = ["epoch"] * len(epochs.begin) + ["validation"] * len(evaluations.begin)
    number = np.append(np.arange(len(epochs.begin)), np.full(len(evaluations.begin), -1))
    # An epoch follows its steps, and an evaluation precedes the step after it.
    after = np.concatenate([epochs.end, evaluations.begin])
    columns = {
        "generation": np.zeros(len(begin), np.int32),
        "rank": np.full(len(begin), rank),
        "kind": arrow.texts(kinds),
        "step": np.searchsorted(steps.begin, after),
        "epoch": arrow.array(number, null=number < 0),
        "begin": begin,
        "end": np.concatenate([epochs.end, evaluations.end]),
    }
    return table_of(INTERVAL_ROWS, columns)


# -- Pair spans of waiting for a batch with spans of working on it --------------------------------


class Steps(NamedTuple):
    """Steps of one process as columns: their begin, the arrival of the batch, their end; nanoseconds."""

    begin: Ints
    data: Ints
    end: Ints
    #: -1 where unknown.
    epoch: Ints

    def chosen(self, which: Bools) -> Steps:
        """Return some of the steps."""
        return Steps(*(column[which] for column in self))


class Between(NamedTuple):
    """Spans of epochs or evaluations as columns, nanoseconds."""

    begin: Ints
    end: Ints


def steps_of(trace: StepSpans, pid: int) -> Steps | None:
    """Return the steps of a process; None if it has none."""
    candidates = [_paired(waits, works) for waits, works in _loops(trace, pid)]
    if not candidates:
        candidates = [
            steps
            for waits, works in _alternating(trace, pid)
            if len((steps := _paired(waits, works)).begin)
            >= _ALTERNATING * max(len(waits), len(works))
        ]
    best = max(candidates, key=lambda steps: len(steps.begin), default=None)
    return None if best is None or len(best.begin) < _FEWEST else best


def epochs_of(trace: StepSpans, pid: int) -> Between:
    """Return the epochs of a process in order; none without spans of epochs."""
    spans = max(trace.named(pid, EPOCH).values(), key=len, default=Spans())
    return Between(spans.begin, spans.end)


def without_evaluations(trace: StepSpans, pid: int, steps: Steps) -> tuple[Steps, Between]:
    """Separate the steps of evaluations from those of training.

    Returns:
        the steps of training, and the evaluations.
    """
    named = trace.named(pid, EVALUATION).values()
    begin = np.concatenate([np.zeros(0, np.int64), *(spans.begin for spans in named)])
    end = np.concatenate([np.zeros(0, np.int64), *(spans.end for spans in named)])
    order = np.argsort(begin, kind="stable")
    begin, end = begin[order], end[order]
    # Drop evaluations within evaluations.
    outer = np.append(True, end[1:] > np.maximum.accumulate(end)[:-1])[: len(end)]
    begin, end = begin[outer], end[outer]
    at = np.searchsorted(begin, steps.begin, side="right") - 1
    inside = (at >= 0) & (steps.begin < end[np.maximum(at, 0)] if len(end) else False)
    training = steps.chosen(~inside)
    if len(training.begin) < _FEWEST:
        # The whole program has a name like an evaluation.
        return steps, Between(begin[:0], end[:0])
    return training, Between(begin, end)


def _loops(trace: StepSpans, pid: int) -> Iterator[tuple[Spans, Spans]]:
    parts: dict[tuple[int, str], dict[str, Spans]] = {}
    for stream, spans in trace.named(pid, LOOP).items():
        match = LOOP.fullmatch(stream.name)
        assert match is not None
        part = "iter" if match["part"] == "iter" else "work"
        if not EPOCH.fullmatch(match["loop"]):
            parts.setdefault((stream.tid, match["loop"]), {})[part] = spans
    return ((pair["iter"], pair["work"]) for pair in parts.values() if len(pair) > 1)


def _alternating(trace: StepSpans, pid: int) -> Iterator[tuple[Spans, Spans]]:
    waits, works = (_most(trace.named(pid, form)) for form in (FETCH, COMPUTE))
    for (wait_stream, waiting), (work_stream, working) in product(waits.items(), works.items()):
        if wait_stream.tid == work_stream.tid:
            yield waiting, working


def _most(streams: Mapping[Stream, Spans]) -> dict[Stream, Spans]:
    chosen = sorted(streams.items(), key=lambda pair: len(pair[1]), reverse=True)
    return dict(chosen[:_MOST_STREAMS])


def _paired(waits: Spans, works: Spans) -> Steps:
    """Pair each wait with the work between it and the next wait; waits without work are dropped."""
    at = np.searchsorted(works.begin, waits.end - _ROUNDED * 1_000, side="left")
    until = np.append(waits.begin[1:], np.iinfo(np.int64).max)[: len(waits)]
    has_work = at < len(works)
    at = np.minimum(at, max(len(works) - 1, 0))
    paired = has_work & (works.begin[at] >= waits.begin) & (works.begin[at] < until)
    at = at[paired]
    end = np.minimum(np.maximum(works.end[at], waits.end[paired]), until[paired])
    data = np.minimum(waits.end[paired], end)
    return Steps(waits.begin[paired], data, end, works.epoch[at])


# -- Read the spans of a trace --------------------------------------------------------------------
#
# A regular expression finds all, and those that may make steps are kept.
#
# A trace may have gigabytes, mostly of single reads. Times are microseconds since 1970, or in the
# unit of ``time_metric``.


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
        of_process = (stream for stream in self.spans if stream.pid == pid)
        return {each: self.spans[each] for each in of_process if form.fullmatch(each.name)}

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

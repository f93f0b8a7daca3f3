"""Traces of torch.profiler (Kineto): steps, their time in DataLoaders, and communication.

    {"schemaVersion": 1, "distributedInfo": {"backend": "gloo", "rank": 0, "world_size": 2, …},
     "host_name": "node-1", "baseTimeNanoseconds": 1790857026000000000, "traceEvents": [
     {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#2", "pid": 8, "tid": 8,
      "ts": 444437816.571, "dur": 2357.380, …

Microseconds since the base time, or since 1970 before PyTorch 2.3. A trace may have gigabytes, and ends
anywhere if its process was killed: a regular expression finds the few spans that matter.

A step lasts from one ``prof.step()`` to the next. When its batch arrived is known if exactly one
DataLoader was called in it; no span shows when gradients were ready or reduced: those timestamps are
null.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import pyarrow as pa

from stallscope.errors import UnreadableError
from stallscope.run import INTERVALS_SCHEMA, STEPS_SCHEMA, Event, Log

from .base import Contents, Parsed, Parser
from .epochs_only import rank_in

KNOWN_FROM = "traces of torch.profiler"

_SCHEMA = re.compile(rb'"schemaVersion"\s*:\s*\d')
_KINETO = re.compile(rb'"deviceProperties"|"baseTimeNanoseconds"|"distributedInfo"')
_RANK = re.compile(rb'"distributedInfo"\s*:\s*\{[^{}]{0,200}?"rank"\s*:\s*(\d{1,7})\b')
_SIZE = re.compile(rb'"distributedInfo"\s*:\s*\{[^{}]{0,200}?"world_size"\s*:\s*(\d{1,7})\b')
_HOST = re.compile(rb'"host_name"\s*:\s*"([^"\\]{1,255})"')
_BASE = re.compile(rb'"baseTimeNanoseconds"\s*:\s*(\d{1,19})\b')
_SPAN = re.compile(
    rb'"ph":\s*"X",\s*"cat":\s*"(?P<kind>[\w ]{1,40})",\s*"name":\s*"(?:'
    rb"ProfilerStep#(?P<step>\d{1,9})"
    rb"|(?P<loader>enumerate\(DataLoader\)#\w{1,80}\.__next__)"
    rb"|(?P<reduction>(?:gloo|mpi|ucc|nccl):\w{1,60}|nccl(?:Dev)?Kernel[^\"]{0,300})"
    rb')",\s*"pid":\s*[^,{}]{1,40},\s*"tid":\s*[^,{}]{1,60},'
    rb'\s*"ts":\s*(?P<ts>\d{1,16})(?:\.(?P<part>\d{1,9}))?,\s*"dur":\s*(?P<dur>\d{1,13}(?:\.\d{1,9})?)'
)
# The description of the trace comes before its events.
_HEAD = 64 << 10
_LATEST_NS = 2**62
# Steps of one trace that become events; profilers usually trace a few.
_MOST_EVENTS = 200


class Span(NamedTuple):
    """A time span, in nanoseconds on the trace's clock."""

    begin: int
    end: int


@dataclass(frozen=True)
class ProfiledStep:
    """One step as the profiler recorded it."""

    number: int
    span: Span
    #: The time in DataLoaders' ``__next__``, one span each.
    loaders: tuple[Span, ...]
    #: Nanoseconds in which any collective ran; None where the trace has none.
    communication: int | None


@dataclass(frozen=True)
class Trace:
    """One file: the traced steps of one rank."""

    path: str
    rank: int
    size: int | None
    host: str | None
    #: Nanoseconds to add to the trace's times to get wall time.
    base_ns: int
    steps: tuple[ProfiledStep, ...]
    whole: bool
    bytes: int


class KinetoParser(Parser):
    name: ClassVar[str] = "kineto"
    title: ClassVar[str] = "traces of torch.profiler"
    suffix: ClassVar[str] = ".pt.trace.json"

    def recognises(self, file_name: str, head: bytes) -> bool:
        start = head[:_HEAD]
        return _SCHEMA.search(start) is not None and _KINETO.search(start) is not None

    def parse(self, path: str, data: bytes) -> Parsed:
        return as_log(read_trace(path, data))

    def read(self, path: str, data: bytes) -> Contents:
        trace = read_trace(path, data)
        events = tuple(_event(trace, step) for step in trace.steps[:_MOST_EVENTS])
        return Contents((as_log(trace),), events=events, is_trace=True)


def read_trace(path: str, data: bytes) -> Trace:
    """Read the steps in a trace.

    Raises:
        UnreadableError: if there is none.
    """
    steps: dict[int, Span] = {}
    loaders: list[Span] = []
    reductions: list[Span] = []
    for found in _SPAN.finditer(data):
        span = _span(found)
        if found["step"] is not None:
            # The device has the same annotation, too.
            if found["kind"] != b"gpu_user_annotation":
                steps.setdefault(int(found["step"]), span)
        elif found["loader"] is not None:
            loaders.append(span)
        elif _is_communication(found["kind"], found["reduction"]):
            reductions.append(span)
    if not steps:
        raise UnreadableError(
            f"{path}: a trace of torch.profiler without steps: call prof.step() after every batch"
        )
    head = data[:_HEAD]
    base, rank, size, host = (form.search(head) for form in (_BASE, _RANK, _SIZE, _HOST))
    return Trace(
        path=path,
        rank=int(rank[1]) if rank else rank_in(path)[0] or 0,
        size=int(size[1]) if size else None,
        host=host[1].decode("utf-8", "replace") if host else None,
        base_ns=int(base[1]) if base else 0,
        steps=tuple(_steps(steps, loaders, reductions)),
        whole=data.rstrip().endswith(b"}"),
        bytes=len(data),
    )


def as_log(trace: Trace) -> Parsed:
    """Make a log of a trace, without the id of its run, which needs all traces together."""
    wall = trace.steps[0].span.begin + trace.base_ns
    facts: dict[str, Any] = {
        "framework": "pytorch",
        "host": trace.host,
        "size": trace.size,
        "known_from": KNOWN_FROM,
    }
    if 0 < wall < _LATEST_NS:
        facts["anchor"] = {"monotonic_ns": trace.steps[0].span.begin, "wall_ns": wall}
    known = {name: value for name, value in facts.items() if value is not None}
    row = {"generation": 0, "rank": trace.rank, "micro": 1}
    rows = [
        {
            **row,
            "step": step.number,
            "begin": step.span.begin,
            "data": step.loaders[0].end if len(step.loaders) == 1 else None,
            "end": step.span.end,
        }
        for step in trace.steps
    ]
    return Parsed(
        # A profiler that traces again, later, writes a further file.
        log=Log(trace.path, trace.rank, 0, trace.steps[0].number, known, trace.whole, trace.bytes),
        run_id="",
        steps=pa.Table.from_pylist(rows, pa.schema(list(STEPS_SCHEMA)[1:])),
        intervals=pa.schema(list(INTERVALS_SCHEMA)[1:]).empty_table(),
    )


def _event(trace: Trace, step: ProfiledStep) -> Event:
    length = step.span.end - step.span.begin
    loading = sum(span.end - span.begin for span in step.loaders)
    parts = [f"{_ms(loading)} in DataLoaders"] if step.loaders else []
    if step.communication is not None:
        parts.append(f"{_ms(step.communication)} with collectives under way")
    wall = trace.base_ns + step.span.end
    return Event(
        kind="profiled_step",
        where=trace.path,
        what=", ".join([f"torch.profiler traced its step {step.number}: {_ms(length)}", *parts]),
        ranks=(trace.rank,),
        hosts=(trace.host,) if trace.host else (),
        wall_ns=wall if length < wall < _LATEST_NS else None,
        waited_ns=length,
    )


def _steps(
    steps: dict[int, Span], loaders: Sequence[Span], reductions: Sequence[Span]
) -> Iterator[ProfiledStep]:
    loaders, reductions = sorted(loaders), sorted(reductions)
    first_reduction = 0
    for number, span in sorted(steps.items(), key=lambda item: item[1]):
        after = first = bisect_left(loaders, (span.begin,))
        while after < len(loaders) and loaders[after].end <= span.end:
            after += 1
        while first_reduction < len(reductions) and reductions[first_reduction].end <= span.begin:
            first_reduction += 1
        busy = _union(reductions[first_reduction:], span) if reductions else None
        yield ProfiledStep(number, span, tuple(loaders[first:after]), busy)


def _union(spans: Iterable[Span], within: Span) -> int:
    """Return the nanoseconds of a span in which any of other spans, sorted by start, is active."""
    busy, until = 0, within.begin
    for span in spans:
        if span.begin >= within.end:
            break
        end = min(span.end, within.end)
        busy += max(0, end - max(span.begin, until))
        until = max(until, end)
    return busy


def _is_communication(kind: bytes, name: bytes) -> bool:
    """Whether something is really communicated: NCCL's annotations on the host are its launches."""
    return kind == b"gpu_user_annotation" or not name.startswith(b"nccl:")


def _span(found: re.Match[bytes]) -> Span:
    # Digits of a float would not do for nanoseconds of years.
    part = (found["part"] or b"").ljust(3, b"0")[:3]
    begin = int(found["ts"]) * 1000 + int(part)
    return Span(begin, begin + round(float(found["dur"]) * 1000))


def _ms(ns: int) -> str:
    return f"{ns / 1e6:.3g} ms"

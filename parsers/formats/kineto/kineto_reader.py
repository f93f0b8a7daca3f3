"""Read the spans of a trace block by block, and keep only what the steps need."""

from __future__ import annotations

import codecs
import itertools
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from stallscope.arrays.types import Ints

from ...files.unpacking import Readable
from .kineto_events import (
    DEVICE_COLLECTIVE,
    DEVICE_OPTIMIZER,
    DEVICE_STEP,
    EVENT,
    HOST_COLLECTIVE,
    KERNEL,
    KEYS,
    LAUNCH,
    LOADER,
    NO_TIMES,
    OPERATOR,
    OPTIMIZER,
    STEP,
    BlockSpans,
    DisjointSpans,
    events,
)

# Larger blocks are no faster, and the arrays of one block stay below 20 MB.
_BLOCK_BYTES = 2 << 20
# No event is longer: a block without the start of one does not belong to a trace.
_LONGEST_EVENT = 1 << 20
#: The description of the trace comes before its events.
HEAD_BYTES = 256 << 10
# The most operators that may still start a collective in the next block; damaged traces have more.
_MOST_OPEN = 1 << 12
# The most parts of a union before they are joined.
_MOST_PARTS = 64
# Programs have fewer; damaged traces name more.
_MOST_THREADS = 1 << 10

# The size of pieces in which events are decoded.
_PIECE_BYTES = 1 << 20
_USUAL_EVENT = re.compile(
    EVENT + b"".join(rb'\s*:\s*[^{}\[\]]{1,500}?"%s"' % key.encode() for key in KEYS[1:])
)
# A kernel of NCCL whose process group is known, as PyTorch writes it since 2.4.
_GROUP = b'"Process Group Name"'
_OF_GROUP = re.compile(
    rb'"cat"\s*:\s*"[Kk]ernel"\s*,\s*"name"\s*:\s*"nccl[^"]{0,400}"[^{}]{0,200}?'
    rb'"dur"\s*:\s*(\d{1,12}(?:\.\d{1,9})?)\s*,\s*"args"\s*:\s*(\{[^{}]{1,8000}\})'
)
# More would be a trace of hours.
_MOST_OF_GROUPS = 1 << 20
_EVENTS = re.compile(r'"traceEvents"\s*:\s*\[')
_RANK = re.compile(rb'"distributedInfo"\s*:\s*\{[^{}]{0,200}?"rank"\s*:\s*(\d{1,6})\b')
_SIZE = re.compile(rb'"distributedInfo"\s*:\s*\{[^{}]{0,200}?"world_size"\s*:\s*(\d{1,6})\b')
_HOST = re.compile(rb'"host_name"\s*:\s*"([^"\\]{1,255})"')
_BASE = re.compile(rb'"baseTimeNanoseconds"\s*:\s*(\d{1,19})\b')


class Span(NamedTuple):
    """A time span, in nanoseconds on the trace's clock."""

    begin: int
    end: int


@dataclass(frozen=True)
class Collectives:
    """Collectives of one kind, in any order."""

    begin: Ints
    end: Ints
    #: Whether it ends on all ranks at once, unlike a broadcast.
    joint: Ints

    @property
    def spans(self) -> DisjointSpans:
        return DisjointSpans.union_of(self.begin, self.end)

    def __len__(self) -> int:
        return len(self.begin)


class GroupCollective(NamedTuple):
    """A collective of NCCL, whose process group is known."""

    #: The group's name, which all of its ranks share, and its description, such as ``mesh_dp``.
    group: str
    description: str
    kind: str
    #: The number of the group's ranks, and that of this collective; None where it is not written.
    size: int | None
    number: int | None
    #: How long its kernel ran: from this rank's arrival until the collective's end.
    ns: int


@dataclass(frozen=True)
class TraceSpans:
    """The spans of one trace, nanoseconds on its clock."""

    rank: int | None
    size: int | None
    host: str | None
    #: Nanoseconds to add to get wall time.
    base_ns: int
    #: Steps by number: on the training thread, and where kernels of the step ran on the device.
    steps: dict[int, Span]
    device_steps: dict[int, Span]
    #: The time in DataLoaders' ``__next__`` on the training thread.
    loaders: DisjointSpans
    #: Whether any of these loaders has workers.
    loader_has_workers: bool
    #: The starts of updates by the optimizer, on the host and on the device.
    optimizers: Ints
    device_optimizers: Ints
    #: Operators of the training thread: those that start no collective, and the others.
    operators: DisjointSpans
    starting: DisjointSpans
    #: Kernels without those of collectives; None without a GPU in the trace.
    kernels: DisjointSpans | None
    #: Gloo's, MPI's and UCC's, and NCCL's kernels.
    host_collectives: Collectives
    device_collectives: Collectives
    #: NCCL's kernels of known process groups, in order.
    of_groups: list[GroupCollective]
    #: Whether any collective was launched, whether or not the trace shows how long it took.
    launches: bool
    whole: bool
    bytes: int


def read_spans(file: Readable, block_bytes: int = _BLOCK_BYTES) -> TraceSpans:
    """Read a trace to its end."""
    collected = _Collected()
    head, tail = b"", b""
    trace = _Trace(file)
    for block in _blocks(trace if trace.is_usual else _Reordered(trace), block_bytes):
        if not tail:
            head = block[:HEAD_BYTES].partition(EVENT)[0]
        tail = (tail + block[-64:])[-64:]
        spans = events(block)
        collected.add(spans)
        if (spans.kind == DEVICE_COLLECTIVE).any():
            collected.of_groups += _of_groups(block, _MOST_OF_GROUPS - len(collected.of_groups))
    thread = collected.training_thread
    operators, starting = thread.operators.unions()
    rank, world, host, base = (form.search(head) for form in (_RANK, _SIZE, _HOST, _BASE))
    return TraceSpans(
        rank=int(rank[1]) if rank else None,
        size=int(world[1]) if world else None,
        host=host[1].decode("utf-8", "replace") if host else None,
        base_ns=int(base[1]) if base else 0,
        steps=thread.steps,
        device_steps=collected.device_steps,
        loaders=thread.loaders.union(),
        loader_has_workers=thread.loader_has_workers,
        optimizers=np.sort(np.array(thread.optimizers, np.int64)),
        device_optimizers=np.sort(np.array(collected.device_optimizers, np.int64)),
        operators=operators,
        starting=starting,
        kernels=collected.kernels.union() if collected.on_device else None,
        host_collectives=collected.collectives(HOST_COLLECTIVE),
        device_collectives=collected.collectives(DEVICE_COLLECTIVE),
        of_groups=collected.of_groups,
        launches=collected.launches,
        whole=tail.rstrip().endswith(b"}"),
        bytes=trace.bytes,
    )


def _of_groups(block: bytes, most: int) -> list[GroupCollective]:
    """Find the kernels of NCCL in a block whose process groups are known."""
    if _GROUP not in block:
        return []
    collectives = []
    for match in itertools.islice(_OF_GROUP.finditer(block), most):
        try:
            known = json.loads(match[2])
        except ValueError:
            continue
        name, kind = known.get("Process Group Name"), known.get("Collective name")
        if isinstance(name, str) and isinstance(kind, str):
            description = str(known.get("Process Group Description", "undefined"))
            counts = _count(known.get("Group size")), _count(known.get("Seq"))
            ns = round(float(match[1]) * 1e3)
            collectives.append(GroupCollective(name, description, kind, *counts, ns))
    return collectives


def _count(value: Any) -> int | None:
    return value if type(value) is int and value >= 0 else None


def _blocks(file: Readable, block_bytes: int) -> Iterator[bytes]:
    """Yield blocks of whole events."""
    rest = b""
    while more := file.read(block_bytes):
        # The last event may continue in the next block.
        last = more.rfind(EVENT)
        if last >= 0:
            block, rest = b"".join((rest, memoryview(more)[:last])), more[last:]
        else:
            rest += more
            cut = max(len(rest) - _LONGEST_EVENT, 0)
            block, rest = rest[:cut], rest[cut:]
        if block:
            yield block
    if rest:
        yield rest


class _Trace:
    """A trace as it is written, whose first bytes are read ahead."""

    def __init__(self, file: Readable) -> None:
        self._file = file
        self._head = file.read(HEAD_BYTES)
        #: The number of bytes read.
        self.bytes = 0
        #: Whether events have the keys in PyTorch's order; other programs write them in others.
        self.is_usual = EVENT not in self._head or bool(_USUAL_EVENT.search(self._head))

    def read(self, size: int, /) -> bytes:
        data, self._head = self._head[:size], self._head[size:]
        if len(data) < size:
            data += self._file.read(size - len(data))
        self.bytes += len(data)
        return data


class _Exact(str):
    """A number as it is written: times of microseconds have more digits than a float."""


class _Reordered:
    """A trace whose events are decoded and written again, with the keys that spans need."""

    def __init__(self, file: Readable) -> None:
        self._file = file
        self._decoder = json.JSONDecoder(parse_float=_Exact)
        self._text = ""
        self._done = bytearray()
        self._in_events = self._ended = False
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode

    def read(self, size: int, /) -> bytes:
        while len(self._done) < size and not self._ended:
            more = self._file.read(_PIECE_BYTES)
            self._text += self._decode(more, not more)
            self._rewrite()
            if not more:
                self._ended = True
                self._done += self._text.encode()
        data = bytes(self._done[:size])
        del self._done[:size]
        return data

    def _rewrite(self) -> None:
        """Move all complete events of the text into what is done."""
        at = 0
        if not self._in_events:
            start = _EVENTS.search(self._text)
            if start is None:
                return
            self._in_events, at = True, start.end()
            self._done += self._text[:at].encode()
        while (begin := self._text.find("{", at)) >= 0:
            try:
                event, end = self._decoder.raw_decode(self._text, begin)
            except (ValueError, RecursionError):
                if len(self._text) - begin < _LONGEST_EVENT:
                    break  # the rest of it comes with the next piece
                end = begin + 1  # damaged
            else:
                self._done += _usual_event(event)
            at = end
        self._text = self._text[at:]


def _usual_event(event: dict[str, Any]) -> bytes:
    """Return an event as PyTorch writes it; nothing for one that is no span."""
    if not all(key in event for key in KEYS):
        return b""
    values = (
        f'"{key}": {value if isinstance(value, _Exact) else json.dumps(value)}'
        for key, value in ((key, event[key]) for key in KEYS)
    )
    return f"{{{', '.join(values)}}},\n".encode()


@dataclass
class _Union:
    """A union of spans that grows."""

    parts: list[DisjointSpans] = field(default_factory=list)

    def add(self, begin: Ints, end: Ints) -> None:
        if not len(begin):
            return
        self.parts.append(DisjointSpans.union_of(begin, end))
        if len(self.parts) >= _MOST_PARTS:
            self.parts = [self.union()]

    def union(self) -> DisjointSpans:
        return DisjointSpans.joined(self.parts)


class _Operators:
    """Operators of one thread, apart from those that start a collective and may wait for it."""

    def __init__(self) -> None:
        self._settled = _Union()
        self._starting = _Union()
        # Operators that may still start a collective, and the starts of collectives.
        self._begin = self._end = self._launched = NO_TIMES

    def launch(self, begin: Ints, end: Ints) -> None:
        """Add operators that only start a collective."""
        self._settled.add(begin, end)
        self._launched = np.sort(np.concatenate([self._launched, begin]))

    def add(self, begin: Ints, end: Ints) -> None:
        """Add operators in the order of their starts, or of their ends; ``launch`` comes first."""
        begin, end = np.concatenate([self._begin, begin]), np.concatenate([self._end, end])
        launched = self._launched
        if not len(begin):
            return
        waits = np.searchsorted(launched, begin) < np.searchsorted(launched, end)
        latest = begin.max()
        going_on = np.flatnonzero((end >= latest) & ~waits)[-_MOST_OPEN:]
        settled = ~waits
        settled[going_on] = False
        self._settled.add(begin[settled], end[settled])
        self._starting.add(begin[waits], end[waits])
        self._begin, self._end = begin[going_on], end[going_on]
        first = self._begin.min(initial=latest)
        self._launched = launched[launched >= first][-_MOST_OPEN:]

    def unions(self) -> tuple[DisjointSpans, DisjointSpans]:
        """Return the operators, and those in which a collective is started."""
        others = self._settled.union() | DisjointSpans.union_of(self._begin, self._end)
        return others, self._starting.union()


@dataclass
class _Thread:
    """The spans of one thread."""

    steps: dict[int, Span] = field(default_factory=dict)
    loaders: _Union = field(default_factory=_Union)
    loader_has_workers: bool = False
    optimizers: list[int] = field(default_factory=list)
    operators: _Operators = field(default_factory=_Operators)

    def add(self, spans: BlockSpans, at: Ints) -> None:
        """Add the spans at these places of a block."""
        kind = spans.kind[at]
        for number, span in _numbered(spans, at[kind == STEP]):
            self.steps.setdefault(number, span)
        loaders, launches = at[kind == LOADER], at[kind == LAUNCH]
        operators = at[kind == OPERATOR]
        self.loaders.add(spans.begin[loaders], spans.end[loaders])
        self.loader_has_workers |= bool(spans.number[loaders].any())
        self.optimizers += spans.begin[at[kind == OPTIMIZER]].tolist()
        self.operators.launch(spans.begin[launches], spans.end[launches])
        self.operators.add(spans.begin[operators], spans.end[operators])


class _Collected:
    """Collects the spans of a trace."""

    def __init__(self) -> None:
        self.device_steps: dict[int, Span] = {}
        self.device_optimizers: list[int] = []
        self.kernels = _Union()
        self.on_device = False
        self.launches = False
        self.of_groups: list[GroupCollective] = []
        self._threads: dict[bytes, _Thread] = {}
        self._collectives: dict[int, list[BlockSpans]] = {
            HOST_COLLECTIVE: [],
            DEVICE_COLLECTIVE: [],
        }

    def add(self, spans: BlockSpans) -> None:
        """Add the spans of a block."""
        for kind, several in self._collectives.items():
            several.append(spans.take(spans.kind == kind))
        kernels = spans.kind == KERNEL
        self.kernels.add(spans.begin[kernels], spans.end[kernels])
        self.on_device |= bool((kernels | (spans.kind == DEVICE_COLLECTIVE)).any())
        self.launches |= bool((spans.kind == LAUNCH).any())
        self.device_optimizers += spans.begin[spans.kind == DEVICE_OPTIMIZER].tolist()
        for number, span in _numbered(spans, np.flatnonzero(spans.kind == DEVICE_STEP)):
            known = self.device_steps.get(number, span)
            # Each stream has its own span.
            self.device_steps[number] = Span(min(known.begin, span.begin), max(known.end, span.end))
        order = np.argsort(spans.thread, kind="stable")
        edges = np.searchsorted(spans.thread[order], np.arange(len(spans.threads) + 1)).tolist()
        for text, low, high in zip(spans.threads, edges, edges[1:], strict=False):
            if text in self._threads or len(self._threads) < _MOST_THREADS:
                thread = self._threads.setdefault(text, _Thread())
                thread.add(spans, order[low:high])
                if self.on_device:
                    # With a device, operators only launch kernels.
                    thread.operators = _Operators()

    @property
    def training_thread(self) -> _Thread:
        """Return the thread with the most steps."""
        return max(self._threads.values(), key=lambda thread: len(thread.steps), default=_Thread())

    def collectives(self, kind: int) -> Collectives:
        several = self._collectives[kind]
        begin, end, joint = (
            np.concatenate([NO_TIMES, *(getattr(spans, name) for spans in several)])
            for name in ("begin", "end", "number")
        )
        return Collectives(begin, end, joint)


def _numbered(spans: BlockSpans, at: Ints) -> Iterator[tuple[int, Span]]:
    columns = (spans.number[at].tolist(), spans.begin[at].tolist(), spans.end[at].tolist())
    return ((number, Span(begin, end)) for number, begin, end in zip(*columns, strict=True))

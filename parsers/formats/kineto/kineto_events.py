"""Find the needed spans in a block of a trace, all at once.

The keys of an event have the order of PyTorch, which ``reader.py`` makes for traces of other programs.
The block is searched for colons after quotes; seven colons in a row after these keys are an event.
Events with other keys, damage, or quotes in their names are skipped.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from stallscope.arrays.types import Bools, Ints

from ...lines.line_blocks import LineBlock, mask, word

#: The start of an event.
EVENT = b'"ph"'
#: The keys of a span, in PyTorch's order.
KEYS = ("ph", "cat", "name", "pid", "tid", "ts", "dur")
_KEYS = tuple(f'"{key}"'.encode() for key in KEYS)
_TS = KEYS.index("ts")
# Kinds of spans.
STEP, DEVICE_STEP, LOADER, OPTIMIZER, DEVICE_OPTIMIZER = 1, 2, 3, 4, 5
OPERATOR, LAUNCH, HOST_COLLECTIVE = 6, 7, 8
KERNEL, DEVICE_COLLECTIVE = 9, 10
#: The kinds of spans that have a thread.
OF_THREADS = (STEP, LOADER, OPTIMIZER, OPERATOR, LAUNCH)
_HAS_THREAD = np.isin(np.arange(DEVICE_COLLECTIVE + 1), OF_THREADS)
# Categories, with their names before PyTorch 1.10.
_OPERATORS = (b'cpu_op"', b'Operator"')
_KERNELS = (b'kernel"', b'Kernel"')
_ON_DEVICE = b'gpu_user_annotation"'
_STEP_NAME, _OPTIMIZER_NAME = b"ProfilerStep#", b"Optimizer.step#"
_LOADER_NAME, _WITH_WORKERS = b"enumerate(DataLoader)#", b"_MultiProcessingDataLoaderIter"
# These spans last until the end of the collective; those named nccl: on the host only launch it.
_COLLECTIVES = (b"gloo:", b"mpi:", b"ucc:")
_LAUNCHES = (b"c10d::", b"_c10d_functional::", b"record_param_comms", b"nccl:")
_NCCL = b"nccl"
_WAIT = b"_c10d_functional::wait_tensor"
# Microseconds: the sum of two is still a number of nanoseconds.
_LATEST_US = 1 << 52
_MOST_DIGITS, _PART_DIGITS, _STEP_DIGITS = 16, 9, 9
# The start of a collective's name that counts, and the longest text of a process and a thread.
_NAME_BYTES, _THREAD_BYTES = 48, 160
_ENDS_NUMBERS = np.isin(np.arange(256), list(b",} \r\n"))
_NS = np.array([10**places for places in range(4)])

NO_TIMES: Ints = np.zeros(0, np.int64)


@dataclass(frozen=True)
class BlockSpans:
    """Spans in a block, in its order; times in nanoseconds."""

    kind: Ints
    begin: Ints
    end: Ints
    #: The number of a step, whether a collective ends on all ranks at once, or whether a loader has
    #: workers; 0 for other spans.
    number: Ints
    #: An index into ``threads``; -1 for spans without a thread.
    thread: Ints
    #: The texts that identify a process and a thread.
    threads: list[bytes]

    def take(self, chosen: Bools) -> BlockSpans:
        """Return the chosen spans."""
        begin, end, number = self.begin[chosen], self.end[chosen], self.number[chosen]
        return BlockSpans(self.kind[chosen], begin, end, number, self.thread[chosen], self.threads)


def events(text: bytes) -> BlockSpans:
    """Find the spans in a block."""
    block = LineBlock(text)
    _, category, name, process, _, time, duration = _places(block)
    kind = _kinds(block, category, name)
    needed = kind > 0
    kind, name, process, time, duration = _only(needed, kind, name, process, time, duration)
    begin, good = _nanoseconds(block, time)
    length, whole = _nanoseconds(block, duration)
    kind, name, process, time, begin, end = _only(
        good & whole, kind, name, process, time, begin, begin + length
    )
    thread, threads = _threads(block, process, time, _HAS_THREAD[kind])
    number = np.zeros(len(kind), np.int64)
    of_steps = np.flatnonzero((kind == STEP) | (kind == DEVICE_STEP))
    name = _value(block, name) + 1
    number[of_steps], digits = block.numbers(name[of_steps] + len(_STEP_NAME), _STEP_DIGITS)
    kind[of_steps[digits == 0]] = 0
    collective = np.flatnonzero((kind == HOST_COLLECTIVE) | (kind == DEVICE_COLLECTIVE))
    number[collective] = _joint(block, name[collective])
    loaders = np.flatnonzero(kind == LOADER)
    number[loaders] = block.has(name[loaders] + len(_LOADER_NAME), _WITH_WORKERS)
    return BlockSpans(kind, begin, end, number, thread, threads)


def _only(chosen: Bools, *columns: Ints) -> tuple[Ints, ...]:
    """Return the chosen events of columns."""
    if chosen.all():
        return columns
    places = np.flatnonzero(chosen)
    return tuple(column[places] for column in columns)


def _places(block: LineBlock) -> tuple[Ints, ...]:
    """Return where the events have the colons after each of their keys."""
    data = block.bytes
    colon = np.flatnonzero((data[1:] == ord(":")) & (data[:-1] == ord('"'))) + 1
    first = np.flatnonzero(data[colon - 2] == EVENT[-2])
    first = first[first + len(_KEYS) <= len(colon)]
    keys = colon[first[None, :] + np.arange(len(_KEYS))[:, None]]
    good = keys[0] >= len(EVENT)
    for key, at in zip(_KEYS, keys, strict=True):
        good &= block.has(at - len(key), key)
    return _only(good, *keys)


def _kinds(block: LineBlock, categories: Ints, names: Ints) -> Ints:
    """Return the kinds of the spans; 0 for those that are not needed."""
    cat, name = (_Texts(block, _value(block, colon) + 1) for colon in (categories, names))
    kind = np.zeros(len(categories), np.int64)
    kernel, on_device = cat.start_with(*_KERNELS), cat.start_with(_ON_DEVICE)
    on_host = ~kernel & ~on_device
    nccl, launch = name.start_with(_NCCL), name.start_with(*_LAUNCHES)
    for chosen, means in (
        (cat.start_with(*_OPERATORS), OPERATOR),
        (kernel, KERNEL),
        (on_host & launch, LAUNCH),
        (on_host & name.start_with(*_COLLECTIVES), HOST_COLLECTIVE),
        ((kernel & nccl) | (on_device & launch & nccl), DEVICE_COLLECTIVE),
        (name.start_with(_LOADER_NAME) & ~on_device, LOADER),
        (name.start_with(_WAIT), 0),
    ):
        if chosen.any():
            kind[chosen] = means
    for named, host, device in (
        (_STEP_NAME, STEP, DEVICE_STEP),
        (_OPTIMIZER_NAME, OPTIMIZER, DEVICE_OPTIMIZER),
    ):
        matches = name.start_with(named)
        kind[matches] = np.where(on_device[matches], device, host)
    return kind


class _Texts:
    """Texts in a block; their first eight bytes are read once."""

    def __init__(self, block: LineBlock, at: Ints) -> None:
        self._block = block
        self._at = at
        self._first = block.words_at(at)

    def start_with(self, *texts: bytes) -> Bools:
        """Return whether they start with any of these."""
        matches = np.zeros(len(self._at), bool)
        for text in texts:
            starts = (self._first & mask(len(text[:8]))) == word(text[:8])
            if text[8:]:
                some = np.flatnonzero(starts)
                starts[some] = self._block.has(self._at[some] + 8, text[8:])
            matches |= starts
        return matches


def _value(block: LineBlock, colon: Ints) -> Ints:
    """Return where the values after these colons start."""
    return np.asarray(colon + 1 + (block.bytes[colon + 1] == ord(" ")))


def _nanoseconds(block: LineBlock, colon: Ints) -> tuple[Ints, Bools]:
    """Read microseconds with up to nine decimals, and return whether there is such a number."""
    at = _value(block, colon)
    us, digits = block.numbers(at, _MOST_DIGITS)
    after = at + digits
    good = (digits > 0) & (us < _LATEST_US)
    part = np.zeros(len(at), np.int64)
    with_part = np.flatnonzero(block.bytes[after] == ord("."))
    value, places = block.numbers(after[with_part] + 1, _PART_DIGITS)
    # Only the first three decimals count.
    part[with_part] = np.where(
        places <= 3,
        value * _NS[3 - np.minimum(places, 3)],
        value // 10 ** np.maximum(places - 3, 0),
    )
    after[with_part] += 1 + places
    # Nothing follows a number that the end of the file cuts.
    good &= _ENDS_NUMBERS[block.bytes[after]]
    return np.where(good, us, 0) * 1000 + part, good


def _threads(
    block: LineBlock, process: Ints, time: Ints, chosen: Bools
) -> tuple[Ints, list[bytes]]:
    """Return the index of each chosen span's thread, and the texts of the threads."""
    thread = np.full(len(chosen), -1)
    places = np.flatnonzero(chosen)
    start, until = _value(block, process[places]), time[places] - len(_KEYS[_TS])
    length = np.minimum(until - start, _THREAD_BYTES)
    index, threads = block.distinct(start, length)
    thread[places] = index
    return thread, threads


def _joint(block: LineBlock, name: Ints) -> Ints:
    """Return whether each collective ends on all ranks at once, unlike a broadcast."""
    index, names = block.distinct(name, np.full(len(name), _NAME_BYTES))
    joint = [_is_joint(text.split(b'"')[0].lower()) for text in names]
    return np.array(joint, np.int64)[index] if joint else np.zeros(0, np.int64)


def _is_joint(name: bytes) -> bool:
    return any(part in name for part in (b"all", b"reduce_scatter", b"reducescatter", b"barrier"))


# -- Sets of time spans as arrays: unions, differences, and how much of a window they cover -------


@dataclass(frozen=True)
class DisjointSpans:
    """Ordered spans that do not overlap, nanoseconds. ``union_of`` makes them of any spans."""

    begin: Ints
    end: Ints

    def __len__(self) -> int:
        return len(self.begin)

    @classmethod
    def union_of(cls, begin: Ints, end: Ints) -> DisjointSpans:
        """Join spans that overlap or touch; drop spans without length."""
        if (end <= begin).any():
            kept = end > begin
            begin, end = begin[kept], end[kept]
        if (begin[1:] < begin[:-1]).any():
            order = np.argsort(begin, kind="stable")
            begin, end = begin[order], end[order]
        if not len(begin) or (begin[1:] > end[:-1]).all():
            return cls(begin, end)
        reached = np.maximum.accumulate(end)
        first = np.append(0, np.flatnonzero(begin[1:] > reached[:-1]) + 1)
        return cls(begin[first], reached[np.append(first[1:], len(begin)) - 1])

    @classmethod
    def joined(cls, several: list[DisjointSpans]) -> DisjointSpans:
        """Return the union of several sets."""
        if not several:
            return cls(NO_TIMES, NO_TIMES)
        columns = zip(*((spans.begin, spans.end) for spans in several), strict=True)
        return cls.union_of(*map(np.concatenate, columns))

    def __or__(self, spans: DisjointSpans) -> DisjointSpans:
        return DisjointSpans.joined([self, spans])

    def __sub__(self, spans: DisjointSpans) -> DisjointSpans:
        """Return the parts that the other spans do not cover."""
        spans = spans._near(self)
        # Each edge changes how many spans of each set are open: +1 where one starts.
        edges = np.concatenate([self.begin, self.end, spans.begin, spans.end])
        left, right = len(self), len(spans)
        change = np.repeat([1, -1, 0, 0], [left, left, right, right])
        cover = np.repeat([0, 0, 1, -1], [left, left, right, right])
        order = np.argsort(edges, kind="stable")
        edges = edges[order]
        alone = (np.cumsum(change[order]) > 0) & (np.cumsum(cover[order]) == 0)
        at = np.flatnonzero(alone)
        return DisjointSpans.union_of(edges[at], edges[np.minimum(at + 1, len(edges) - 1)])

    def within(self, low: Ints, high: Ints) -> Ints:
        """Return how much of each window they cover, nanoseconds; windows that end early are empty."""
        return self._until(np.maximum(high, low)) - self._until(low)

    @cached_property
    def _before(self) -> Ints:
        """Return the total length of all spans before each one."""
        return np.append(0, np.cumsum(self.end - self.begin))

    def _near(self, spans: DisjointSpans) -> DisjointSpans:
        """Return the spans that overlap any of the other spans, often a few of many."""
        change = np.zeros(len(self) + 1, np.int32)
        np.add.at(change, np.searchsorted(self.end, spans.begin, "right"), 1)
        np.add.at(change, np.searchsorted(self.begin, spans.end), -1)
        near = np.cumsum(change[:-1]) > 0
        return DisjointSpans(self.begin[near], self.end[near])

    def _until(self, moment: Ints) -> Ints:
        """Return how much they cover before each moment."""
        at = np.searchsorted(self.begin, moment, "right")
        beyond = np.append(0, self.end)[at] - moment if len(self) else np.zeros_like(moment)
        return np.asarray(self._before[at] - np.maximum(beyond, 0) * (at > 0))

"""Horovod Timelines: what Horovod 0.15 to 0.28 writes on rank 0 under HOROVOD_TIMELINE.

A timeline is meant as one JSON array, and often is none: it ends where the job was killed, tensor
names are not escaped, and up to 0.20.0 the array was never closed. It can have gigabytes: 162
gradients were 96 KB a step. So it is not parsed as JSON. Every event is written by the same few lines
of C++, byte for byte alike in all these versions; they are looked for in blocks of bytes:

    {"ph": "B", "name": "ALLREDUCE", "ts": 11200, "pid": 1}          an activity begins
    {"ph": "E", "ts": 11300, "pid": 1}                               the tensor's latest one ends
    {"ph": "E", "ts": 15100, "pid": 1, "args": {"dtype": "float32", "shape": "[64]"}}
    {"ph": "X", "name": "0", "ts": 10101, "pid": 1, "dur": 0}        rank 0 has the tensor ready
    {"ph": "i", "name": "CYCLE_START", "ts": 10012, "s": "g"}        a cycle of Horovod's thread

``pid`` is a tensor, in the order of first appearance, and a line of its own gives its name. ``ts`` is
microseconds of the steady clock since Horovod started; since 0.20.1 a line at the top says when that
was on the wall clock. Damaged events are left out and counted.

Two traps: tensors that were fused repeat the same activity, so unions of intervals mean something and
sums do not; and once the response cache knows a tensor no rank is ticked any more, so who was late
is told for the first negotiation of each tensor only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from stallscope.errors import NotFoundError, UnreadableError

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]
Words = npt.NDArray[np.uint64]

#: One row per activity that began and ended, in the order of their ends. ``tensor`` is the key of
#: ``tensors``; ``level`` is 0 for negotiations and operations and 1 for what an operation consists
#: of; ``bytes`` is what the operation put out, null for all that is no successful operation.
ACTIVITIES = pa.schema(
    [
        ("tensor", pa.int32()),
        ("activity", pa.dictionary(pa.int32(), pa.string())),
        ("level", pa.int32()),
        ("begin_us", pa.int64()),
        ("end_us", pa.int64()),
        ("bytes", pa.int64()),
    ]
)

#: One row per moment at which a rank was seen to have a tensor ready.
TICKS = pa.schema([("tensor", pa.int32()), ("rank", pa.int32()), ("at_us", pa.int64())])

# Fast enough, and the tables of one block stay below 10 MB.
_BLOCK_BYTES = 4 << 20
# No event is longer: where twice as many bytes hold none, they are none of a timeline.
_LONGEST_EVENT = 1 << 16
# Names of activities have less than 30 letters, and a shape a few numbers.
_LONGEST_TEXT = 256
# Two for each tensor at most in a whole timeline; a damaged one must not make every block slower.
_MOST_OPEN = 1 << 17

_HEAD_BYTES = 4096
_HEAD = re.compile(rb'\s*\[\s*\{"(name": "process_name", "ph": "M"|ph": "[BEXi]")')
_EVENT, _NAME, _TIME, _TENSOR = b'{"ph": "', b'", "name', b', "ts": ', b' "pid": '
_EVENT_COLON, _COLON = _EVENT.index(b":"), _TIME.index(b":")
_FIRST_TEXT = len(b'{"ph": "B", "name": "')
_DIGITS = 18
_META = b'{"name": "process_name", "ph": "M", "pid": '
# A name can hold anything, quotes and braces as well: it ends where what must follow it begins.
_META_REST = re.compile(
    rb'(\d{1,9}), "args": \{'
    rb'(?:"start_time_since_epoch_in_micros":(\d{1,18})|"name": "(.*?)")'
    rb'\}\},\n\{"name": "process_sort_index"',
    re.DOTALL,
)
_ARGS = re.compile(rb', "args": \{"dtype": "(\w+)", "shape": "\[([\d, ]*)\]"')
_ITEM_BYTES = {
    b"uint8": 1,
    b"int8": 1,
    b"bool": 1,
    b"uint16": 2,
    b"int16": 2,
    b"float16": 2,
    b"int32": 4,
    b"float32": 4,
    b"int64": 8,
    b"float64": 8,
}


@dataclass(frozen=True)
class Batch:
    """What one block of the file held; activities that are still open come with a later one."""

    activities: pa.Table
    ticks: pa.Table
    #: Begins of cycles, where HOROVOD_TIMELINE_MARK_CYCLES was set.
    cycles_us: Ints


@dataclass(frozen=True)
class Timeline:
    """A whole timeline."""

    #: Wall clock, microseconds since 1970, at time 0 of the timeline; None before Horovod 0.20.1.
    start_us: int | None
    #: Names of tensors by number.
    tensors: dict[int, str]
    activities: pa.Table
    ticks: pa.Table
    cycles_us: Ints
    #: Events that could not be read, ends without a begin, and begins without an end.
    unreadable: int
    unmatched: int
    unfinished: int


def is_timeline(head: bytes) -> bool:
    """Whether a file that begins with these bytes is a Horovod Timeline."""
    return _HEAD.match(head) is not None


def read_timeline(path: str | Path) -> Timeline:
    """The whole timeline in memory, about 30 bytes for each activity.

    Raises:
        NotFoundError: if there is no such file.
        UnreadableError: if it is no Horovod Timeline.
    """
    try:
        with Path(path).open("rb") as file:
            reader = TimelineReader(str(path), file)
            batches = list(reader.batches())
    except FileNotFoundError:
        raise NotFoundError(f"{path}: there is no such file") from None
    except OSError as error:
        raise UnreadableError(f"{path}: cannot be read: {error.strerror}") from None
    return Timeline(
        start_us=reader.start_us,
        tensors=reader.tensors,
        activities=pa.concat_tables([batch.activities for batch in batches]).unify_dictionaries(),
        ticks=pa.concat_tables([batch.ticks for batch in batches]),
        cycles_us=np.concatenate([batch.cycles_us for batch in batches]),
        unreadable=reader.unreadable,
        unmatched=reader.unmatched,
        unfinished=reader.unfinished,
    )


class TimelineReader:
    """Reads a timeline block by block, in memory that does not grow with the file.

    ``name`` is what messages call the file. The attributes are complete once the batches are through.
    """

    def __init__(self, name: str, file: BinaryIO, block_bytes: int = _BLOCK_BYTES) -> None:
        self._name = name
        self._file = file
        self._block_bytes = block_bytes
        self._activities: dict[bytes, int] = {}
        self._open = _Opened.none()
        self._given_up = 0
        self.start_us: int | None = None
        self.tensors: dict[int, str] = {}
        self.unreadable = 0
        self.unmatched = 0

    @property
    def unfinished(self) -> int:
        """Activities that have not ended so far."""
        return len(self._open.tensor) + self._given_up

    def batches(self) -> Iterator[Batch]:
        """The blocks of the file in order, at least one.

        Raises:
            UnreadableError: if the file does not begin as a Horovod Timeline does.
        """
        block = self._file.read(max(self._block_bytes, _HEAD_BYTES))
        if not is_timeline(block[:_HEAD_BYTES]):
            raise UnreadableError(
                f"{self._name}: no Horovod Timeline: it does not begin with an array of its events"
            )
        while True:
            more = self._file.read(self._block_bytes)
            # The last event may go on in the next block.
            cut = block.rfind(_EVENT) if more else len(block)
            if cut <= 0 and len(block) > 2 * _LONGEST_EVENT:
                cut = len(block) - _LONGEST_EVENT
                self.unreadable += 1
            if cut > 0:
                yield self._batch(block[:cut])
            block = block[max(cut, 0) :] + more
            if not more:
                return

    def _batch(self, block: bytes) -> Batch:
        self._read_names(block)
        events = _events(block)
        self.unreadable += events.unreadable
        names = self._coded(events)
        return Batch(
            activities=self._matched(events, names),
            ticks=_ticks(events),
            cycles_us=events.at[events.kind == ord("i")],
        )

    def _read_names(self, block: bytes) -> None:
        for rest in block.split(_META)[1:]:
            found = _META_REST.match(rest)
            if found is None:
                continue
            number, start, name = found.groups()
            if start is not None:
                self.start_us = int(start)
            else:
                self.tensors[int(number)] = name.decode("utf-8", "replace")

    def _coded(self, events: _Events) -> Ints:
        """Per event, the number of the activity that begins; 0 where none does."""
        text = np.where(events.kind == ord("B"), events.text, -1)
        number = np.zeros(len(events.texts) + 1, np.int64)
        known = self._activities
        for index in np.unique(text[text >= 0]).tolist():
            number[index] = known.setdefault(events.texts[index], len(known))
        return number[text]

    def _matched(self, events: _Events, names: Ints) -> pa.Table:
        """The activities that end in this block; what stays open is kept for the next one."""
        here = (events.kind == ord("B")) | (events.kind == ord("E"))
        before = self._open
        tensor = np.concatenate([before.tensor, events.tensor[here]])
        at = np.concatenate([before.at, events.at[here]])
        name = np.concatenate([before.name, names[here]])
        size = np.concatenate([np.full(len(before.tensor), -1), events.size[here]])
        begins = np.concatenate([np.ones(len(before.tensor), bool), events.kind[here] == ord("B")])
        begin, end, level, unmatched = _pairs(tensor, begins)
        self.unmatched += unmatched
        still_open = begins.copy()
        still_open[begin] = False
        opened = np.flatnonzero(still_open)
        self._given_up += max(0, len(opened) - _MOST_OPEN)
        opened = opened[-_MOST_OPEN:]
        self._open = _Opened(tensor[opened], at[opened], name[opened])
        activity = pa.DictionaryArray.from_arrays(
            pa.array(name[begin], pa.int32()),
            pa.array([text.decode("utf-8", "replace") for text in self._activities], pa.string()),
        )
        sizes = size[end]
        return pa.table(
            [
                pa.array(tensor[end], pa.int32()),
                activity,
                pa.array(level, pa.int32()),
                pa.array(at[begin]),
                pa.array(at[end]),
                pa.array(sizes, mask=sizes < 0),
            ],
            schema=ACTIVITIES,
        )


@dataclass(frozen=True)
class _Opened:
    """Activities that have begun, in the order in which they did."""

    tensor: Ints
    at: Ints
    name: Ints

    @classmethod
    def none(cls) -> _Opened:
        empty = np.zeros(0, np.int64)
        return cls(empty, empty, empty)


@dataclass(frozen=True)
class _Events:
    """The events of a block, in order, with their texts apart: each different one once."""

    kind: Bytes
    at: Ints
    #: 0 for markers, which belong to no tensor.
    tensor: Ints
    #: Index into ``texts``; -1 for ends, which have none.
    text: Ints
    texts: list[bytes]
    #: Bytes that an operation put out; -1 where that is not said.
    size: Ints
    unreadable: int


@dataclass(frozen=True)
class _Keys:
    """Where the parts of each event lie in the block; not all of them need be one."""

    start: Ints
    until: Ints
    kind: Bytes
    time_at: Ints
    tensor_at: Ints


def _events(block: bytes) -> _Events:
    # Room to look beyond the last event without asking whether there is any.
    data = np.frombuffer(block + b"\0" * _LONGEST_TEXT, np.uint8)
    # The eight bytes at every place as one number, to be compared at once.
    words = np.ndarray((len(data) - 7,), "<u8", buffer=data, strides=(1,))
    keys = _keys(data, words, len(block))
    at, time_end = _numbers(data, keys.time_at + len(_TIME))
    tensor, tensor_end = _numbers(data, keys.tensor_at + len(_TENSOR))
    good = _well_formed(data, words, keys, time_end, tensor_end) & (tensor < 2**31)

    ends, marker = keys.kind == ord("E"), keys.kind == ord("i")
    text = np.full(len(good), -1)
    named = good & ~ends
    text_at = keys.start[named] + _FIRST_TEXT
    text[named], texts = _texts(data, text_at, keys.time_at[named] - 1 - text_at)
    size = np.full(len(good), -1)
    sized = good & ends & (data[tensor_end] == ord(","))
    size[sized] = _sizes(data, tensor_end[sized], keys.until[sized])
    return _Events(
        kind=keys.kind[good],
        at=at[good],
        tensor=np.where(marker, 0, tensor)[good],
        text=text[good],
        texts=texts,
        size=size[good],
        unreadable=int(np.count_nonzero(~good)),
    )


def _keys(data: Bytes, words: Words, end: int) -> _Keys:
    # One look at every byte is enough: the keys of an event follow each other, colon by colon.
    colon = np.append(np.flatnonzero(data == ord(":")), [end + _COLON] * 3)
    event = np.flatnonzero(words[np.maximum(colon - _EVENT_COLON, 0)] == _word(_EVENT))
    start = colon[event] - _EVENT_COLON
    kind = data[start + len(_EVENT)]
    time = event + np.where(kind == ord("E"), 1, 2)
    return _Keys(
        start=start,
        until=np.append(start[1:], end),
        kind=kind,
        time_at=colon[time] - _COLON,
        tensor_at=colon[time + 1] - _COLON,
    )


def _well_formed(data: Bytes, words: Words, keys: _Keys, time_end: Ints, tensor_end: Ints) -> Bools:
    """Which events are as Horovod writes them, and not cut by the end of the file."""
    ends, marker = keys.kind == ord("E"), keys.kind == ord("i")
    length = keys.time_at - 1 - (keys.start + _FIRST_TEXT)
    named = (words[keys.start + len(_EVENT) + 1] == _word(_NAME)) & (length >= 0)
    named &= length < _LONGEST_TEXT
    unnamed = keys.time_at == keys.start + len(_EVENT) + 2
    # A number that the end of the file cuts is followed by nothing.
    timed = (words[keys.time_at] == _word(_TIME)) & (time_end > 0) & (data[time_end] == ord(","))
    placed = (words[keys.tensor_at] == _word(_TENSOR)) & (keys.tensor_at == time_end + 1)
    placed &= (tensor_end > 0) & np.isin(data[tensor_end], np.frombuffer(b",}", np.uint8))
    known = np.isin(keys.kind, np.frombuffer(b"BEXi", np.uint8))
    return np.asarray(known & np.where(ends, unnamed, named) & timed & (placed | marker))


def _ticks(events: _Events) -> pa.Table:
    here = events.kind == ord("X")
    numbers = [int(text) if text.isdigit() and len(text) < 10 else -1 for text in events.texts]
    rank = np.array([*numbers, -1], np.int64)[events.text]
    here &= rank >= 0
    return pa.table(
        [
            pa.array(events.tensor[here], pa.int32()),
            pa.array(rank[here], pa.int32()),
            pa.array(events.at[here]),
        ],
        schema=TICKS,
    )


def _pairs(tensor: Ints, begins: Bools) -> tuple[Ints, Ints, Ints, int]:
    """Which begin belongs to which end: positions of both, in the order of the ends, and the level.

    An end closes its tensor's latest activity that is open. The number of those is a walk that goes
    up with begins and down with ends and cannot go below 0: ends that would are left out and counted.
    Among begins and ends of one tensor that lead to and from one height, each end follows its begin.
    """
    if not len(tensor):
        return tensor, tensor, tensor, 0
    order = np.argsort(tensor, kind="stable")
    up = begins[order]
    first = np.append(True, tensor[order][1:] != tensor[order][:-1])
    group = np.cumsum(first) - 1
    walk = np.cumsum(np.where(up, 1, -1))
    walk -= (walk - np.where(up, 1, -1))[first][group]
    # The lowest point so far of each group's own walk: every group is shifted below the one before.
    shift = group * (2 * len(tensor) + 2)
    lowest = np.minimum(np.minimum.accumulate(walk - shift) + shift, 0)
    before = np.where(first, 0, np.append(0, lowest[:-1]))
    kept = lowest == before
    height = np.where(up, walk - lowest, walk - lowest + 1)[kept]

    by_height = np.lexsort((height, group[kept]))
    position, up, height = order[kept][by_height], up[kept][by_height], height[by_height]
    # Behind a begin comes its own end, unless the walk never came back to that height.
    closed = np.flatnonzero(up[:-1] & ~up[1:])
    begin, end, level = position[closed], position[closed + 1], height[closed] - 1
    in_order = np.argsort(end)
    return begin[in_order], end[in_order], level[in_order], int(np.count_nonzero(~kept))


def _word(text: bytes) -> np.uint64:
    return np.uint64(int.from_bytes(text, "little"))


def _numbers(data: Bytes, start: Ints) -> tuple[Ints, Ints]:
    """The numbers that begin there, and where they end; 0 as the end of what is none."""
    value = np.zeros(len(start), np.int64)
    length = np.zeros(len(start), np.int64)
    going = np.ones(len(start), bool)
    for index in range(_DIGITS):
        digit = data[start + index] - np.uint8(ord("0"))
        going &= digit < 10
        if not going.any():
            break
        value = np.where(going, value * 10 + digit, value)
        length += going
    return value, np.where(length > 0, start + length, 0)


def _texts(data: Bytes, start: Ints, length: Ints) -> tuple[Ints, list[bytes]]:
    """The texts at these places: per place an index, and every different text once."""
    if not len(start):
        return start, []
    width = max(int(length.max()), 1)
    letters = np.ndarray((len(data) - width, width), np.uint8, data, strides=(1, 1))[start]
    letters *= np.arange(width) < length[:, None]
    rows = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(width), len(start), [None, pa.py_buffer(letters)]
    )
    coded = rows.dictionary_encode()
    texts = [text.rstrip(b"\0") for text in coded.dictionary.to_pylist()]
    return coded.indices.to_numpy().astype(np.int64), texts


def _sizes(data: Bytes, start: Ints, until: Ints) -> Ints:
    """Bytes of the tensors whose types and shapes are told there."""
    length = np.minimum(until - start, _LONGEST_TEXT)
    index, texts = _texts(data, start, length)
    return np.array([*(_size(text) for text in texts), -1], np.int64)[index]


def _size(args: bytes) -> int:
    found = _ARGS.match(args)
    size = _ITEM_BYTES.get(found[1], -1) if found else -1
    if found is None or size < 0:
        return -1
    for dimension in found[2].replace(b",", b" ").split():
        size *= int(dimension)
    return size if size < 2**62 else -1

"""Find and read all events in a block of a timeline at once."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from stallscope.arrays.types import Bools, Ints

from ...lines.line_blocks import Bytes, LineBlock

#: The start of an event.
EVENT = b'{"ph": "'
# Names of activities have fewer than 30 letters, and a shape a few numbers.
_LONGEST_TEXT = 256
_NAME, _TIME, _TENSOR = b'name": "', b', "ts": ', b' "pid": '
_FIRST_TEXT = len(b'{"ph": "B", "name": "')
_MOST_DIGITS, _MOST_TENSOR_DIGITS = 16, 7
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

# A timeline has at most two for each tensor; a damaged one must not slow every block down.
_MOST_OPEN = 1 << 17

# -- The contents of a timeline as arrays ---------------------------------------------------------


class Columns:
    """Arrays of one length, as a dataclass: a row has one entry in each."""

    if TYPE_CHECKING:
        __match_args__: tuple[str, ...]

        def __init__(self, *columns: Any) -> None: ...

    @classmethod
    def joined(cls, several: Sequence[Self]) -> Self:
        """Join several into one."""
        return cls(*map(np.concatenate, zip(*several, strict=True)))

    def __iter__(self) -> Iterator[Any]:
        return (getattr(self, name) for name in self.__match_args__)

    def __len__(self) -> int:
        return len(next(iter(self)))

    def only(self, chosen: Bools) -> Self:
        """Return the chosen rows."""
        return self if chosen.all() else self.take(np.flatnonzero(chosen))

    def take(self, places: Ints | slice) -> Self:
        """Return the rows at these places, in this order."""
        return type(self)(*[column[places] for column in self])


@dataclass(frozen=True)
class Activities(Columns):
    """Activities that started and ended. Times are microseconds of the timeline."""

    tensor: Ints
    #: Index into the reader's ``activity_names``.
    name: Ints
    #: 0 for negotiations and operations, 1 for parts of operations.
    level: Ints
    begin: Ints
    end: Ints
    #: The output of a successful operation, bytes; -1 for all other activities.
    size: Ints


@dataclass(frozen=True)
class Ticks(Columns):
    """Times (microseconds) at which a rank had a tensor ready."""

    tensor: Ints
    rank: Ints
    at: Ints


@dataclass(frozen=True)
class BlockRows:
    """The contents of one block of a timeline."""

    #: In the order of their ends; open ones are in a later block.
    activities: Activities
    ticks: Ticks
    #: Starts of cycles, if HOROVOD_TIMELINE_MARK_CYCLES was set.
    cycles: Ints
    #: The first moment of the block, and the earliest one of activities in later blocks, unless the file
    #: is damaged.
    first: int
    settled: int
    #: Whether a restarted job begins with this block.
    restarted: bool = False

    @classmethod
    def joined(cls, several: Sequence[BlockRows]) -> BlockRows:
        """Join several into one."""
        return cls(
            Activities.joined([block.activities for block in several]),
            Ticks.joined([block.ticks for block in several]),
            np.concatenate([block.cycles for block in several]),
            several[0].first,
            several[-1].settled,
            any(block.restarted for block in several),
        )


class Texts:
    """Names of activities and ranks, numbered as they appear."""

    def __init__(self) -> None:
        self.known: list[bytes] = []
        self._codes: dict[bytes, int] = {}

    def codes(self, index: Ints, texts: list[bytes]) -> Ints:
        """Return the numbers of texts; of each its index among the distinct texts is given."""
        numbers = np.full(len(texts), -1)
        for at in np.flatnonzero(np.bincount(index, minlength=len(texts))).tolist():
            numbers[at] = self._code(texts[at])
        return numbers[index]

    def _code(self, text: bytes) -> int:
        if text not in self._codes:
            self.known.append(text)
            self._codes[text] = len(self.known) - 1
        return self._codes[text]


@dataclass(frozen=True)
class Events(Columns):
    """The events of a block, in order."""

    kind: Bytes
    at: Ints
    #: 0 for markers, which belong to no tensor.
    tensor: Ints
    #: The number of the text; -1 for ends, which have none.
    text: Ints
    #: Bytes that an operation put out; -1 if unknown.
    size: Ints


def events(text: bytes, texts: Texts) -> tuple[Events, int]:
    """Find the events in a block that starts with one, or with the text before the first one.

    Returns:
        the events, and the number of unreadable ones.
    """
    block = LineBlock(text)
    data = block.bytes
    start = block.having(EVENT[0])
    start = start[block.has(start, EVENT)]
    kind, until = data[start + len(EVENT)], np.append(start[1:], block.size)
    ends, marker = kind == ord("E"), kind == ord("i")
    named = np.flatnonzero(~ends)
    time_at = start + len(EVENT) + 2
    text_index, names, length = block.texts_until(
        start[named] + _FIRST_TEXT, ord('"'), _LONGEST_TEXT
    )
    time_at[named] = np.minimum(start[named] + _FIRST_TEXT + length + 1, block.size)
    at, digits = block.numbers(time_at + len(_TIME), _MOST_DIGITS)
    time_end = time_at + len(_TIME) + digits
    tensor, tensor_digits = block.numbers(time_end + 1 + len(_TENSOR), _MOST_TENSOR_DIGITS + 1)
    tensor_end = time_end + 1 + len(_TENSOR) + tensor_digits
    after = data[tensor_end]

    # Nothing follows a number that the end of the file cuts.
    placed = (after == ord("}")) | (after == ord(","))
    placed &= (tensor_digits > 0) & (tensor_digits <= _MOST_TENSOR_DIGITS)
    placed &= block.has(time_end + 1, _TENSOR)
    good = ends | marker | (kind == ord("B")) | (kind == ord("X"))
    good &= placed | marker
    good &= block.has(time_at, _TIME) & (digits > 0) & (data[time_end] == ord(","))
    good[named] &= block.has(start[named] + _FIRST_TEXT - len(_NAME), _NAME) & (
        length < _LONGEST_TEXT
    )

    code, size = np.full((2, len(good)), -1)
    chosen = good[named]
    code[named[chosen]] = texts.codes(text_index[chosen], names)
    sized = np.flatnonzero(good & ends & (after == ord(",")))
    size[sized] = _sizes(block, tensor_end[sized], until[sized])
    block_events = Events(kind, at, np.where(marker, 0, tensor), code, size)
    return block_events.only(good), int(np.count_nonzero(~good))


def _sizes(block: LineBlock, start: Ints, until: Ints) -> Ints:
    """Return the sizes of tensors by their types and shapes, bytes."""
    index, texts = block.distinct(start, np.minimum(until - start, _LONGEST_TEXT))
    return np.array([*map(_size, texts)], np.int64)[index]


def _size(args: bytes) -> int:
    match = _ARGS.match(args)
    size = _ITEM_BYTES.get(match[1], -1) if match else -1
    if match is None or size < 0:
        return -1
    for dimension in match[2].replace(b",", b" ").split():
        size *= int(dimension)
    return size if size < 2**62 else -1


# -- Match the ends of activities with their starts -----------------------------------------------


@dataclass(frozen=True)
class Opened(Columns):
    """Activities that have not ended, in the order of their starts."""

    tensor: Ints
    at: Ints
    name: Ints


@dataclass(frozen=True)
class Matched:
    """The activities that end in a block, in the order of their ends, and those still open."""

    activities: Activities
    opened: Opened
    #: The number of ends without a start or before it, and of starts that are given up.
    unmatched: int
    given_up: int


def matched(before: Opened, events: Events) -> Matched:
    """Match the starts and ends of activities that end in this block."""
    events = events.only((events.kind == ord("B")) | (events.kind == ord("E")))
    tensor = np.concatenate([before.tensor, events.tensor])
    at = np.concatenate([before.at, events.at])
    name = np.concatenate([before.name, events.text])
    size = np.concatenate([np.full(len(before.tensor), -1), events.size])
    begins = np.concatenate([np.ones(len(before.tensor), bool), events.kind == ord("B")])
    begin, end, level, unmatched = _pairs(tensor, begins)
    still_open = begins
    still_open[begin] = False
    backwards = at[end] < at[begin]
    if backwards.any():
        begin, end, level = begin[~backwards], end[~backwards], level[~backwards]
        unmatched += int(np.count_nonzero(backwards))
    opened = np.flatnonzero(still_open)
    return Matched(
        Activities(tensor[end], name[begin], level, at[begin], at[end], size[end]),
        Opened(tensor, at, name).take(opened[-_MOST_OPEN:]),
        unmatched,
        max(len(opened) - _MOST_OPEN, 0),
    )


def _pairs(tensor: Ints, begins: Bools) -> tuple[Ints, Ints, Ints, int]:
    """Match starts and ends: return positions of both, in the order of the ends, and the level.

    An end closes its tensor's latest open activity. The number of open activities is a walk that goes up
    with starts and down with ends; ends that would lead below 0 are dropped and counted. Among the
    starts and ends of a tensor at one height, each end follows its start.
    """
    if not len(tensor):
        return tensor, tensor, tensor, 0
    order = _in_order(tensor)
    up, tensors = begins[order], tensor[order]
    first = np.append(0, np.flatnonzero(tensors[1:] != tensors[:-1]) + 1)
    lengths = np.diff(np.append(first, len(tensors)))
    walk = np.cumsum(2 * up.view(np.int8) - 1, dtype=np.int64)
    walk -= np.repeat(np.append(0, walk[first[1:] - 1]), lengths)
    group = np.repeat(np.arange(len(first)), lengths)
    height, unmatched = walk + ~up, 0
    if int(walk.min()) < 0:
        lowest = _lowest(walk, group)
        # An end without a start leads the walk to a new low.
        before = np.append(0, lowest[:-1])
        before[first] = 0
        kept = lowest == before
        unmatched = int(np.count_nonzero(~kept))
        order, up, group, height = order[kept], up[kept], group[kept], (height - lowest)[kept]

    by_height = _in_order(group * (int(height.max(initial=0)) + 1) + height)
    position, up = order[by_height], up[by_height]
    # A start is followed by its end, unless the walk never returns to that height.
    closed = np.flatnonzero(up[:-1] & ~up[1:])
    begin_of, level_of = np.full(len(tensor), -1), np.zeros(len(tensor), np.int64)
    end = position[closed + 1]
    begin_of[end], level_of[end] = position[closed], height[by_height[closed]] - 1
    ends = np.flatnonzero(begin_of >= 0)
    return begin_of[ends], ends, level_of[ends], unmatched


def _lowest(walk: Ints, group: Ints) -> Ints:
    """Return the lowest point so far of each group's own walk, at most 0."""
    # Shift each group below the one before it, so that one sweep works for all.
    shift = group * (2 * len(walk) + 2)
    return np.minimum(np.minimum.accumulate(walk - shift) + shift, 0)


def _in_order(key: Ints) -> Ints:
    """Return the stable order of keys."""
    # Sorting numbers of 16 bits is much faster.
    short = int(key.max(initial=0)) < 1 << 16
    return np.argsort(key.astype(np.uint16) if short else key, kind="stable")

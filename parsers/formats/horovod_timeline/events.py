"""Find and read all events in a block of a timeline at once."""

from __future__ import annotations

import re
from dataclasses import dataclass
from threading import Lock

import numpy as np

from stallscope.arrays.types import Ints

from ...lines.blocks import Bytes, LineBlock, Words, distinct
from .rows import Columns

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


class Texts:
    """Names of activities and ranks, numbered as they appear. Thread-safe."""

    def __init__(self) -> None:
        self._lock = Lock()
        self.known: list[bytes] = []
        self._codes: dict[bytes, int] = {}

    def codes(self, words: list[Words]) -> Ints:
        """Return the numbers of texts, given as words of eight bytes."""
        index, texts = distinct(words)
        return np.array([*map(self._code, texts)], np.int64)[index]

    def _code(self, text: bytes) -> int:
        with self._lock:
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
    words, length = block.words_until(start[named] + _FIRST_TEXT, ord('"'), _LONGEST_TEXT)
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
    code[named[chosen]] = texts.codes([column[chosen] for column in words])
    sized = np.flatnonzero(good & ends & (after == ord(",")))
    size[sized] = _sizes(block, tensor_end[sized], until[sized])
    block_events = Events(kind, at, np.where(marker, 0, tensor), code, size)
    bad = int(np.count_nonzero(~good))
    return block_events.only(good) if bad else block_events, bad


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

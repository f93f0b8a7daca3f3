"""Find and read all events in a block of a timeline at once."""

from __future__ import annotations

import re
from dataclasses import dataclass
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..blocks import Words, digits_of, eight, leading, number, others_among, word
from .rows import Bools, Ints

Bytes = npt.NDArray[np.uint8]
Index = npt.NDArray[np.int32]

#: The start of an event.
EVENT = b'{"ph": "'
# Names of activities have less than 30 letters, and a shape a few numbers.
_LONGEST_TEXT = 256
_NAME, _TIME, _TENSOR = b'", "name', b', "ts": ', b' "pid": '
_EVENT_COLON, _COLON = EVENT.index(b":"), _TIME.index(b":")
_FIRST_TEXT = len(b'{"ph": "B", "name": "')
# What lies between the end of a time and the colon that comes next: ``, "pid"`` or ``, "s"``.
_TO_TENSOR, _TO_SCOPE = 7, 5
_MOST_DIGITS = 16
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


# By the number of digits in a word, the bits of those: they are its last ones.
_OF_DIGITS = np.array([0, *((2**64 - 1) << 8 * (8 - n) & (2**64 - 1) for n in range(1, 9))], "u8")
# Odd numbers without a pattern: texts of equal length that differ give different sums.
_MIXED = np.array(
    [0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x27D4EB2F165667C5], "u8"
)
_USUAL, _WIDE = 24, 32


class Texts:
    """Names of activities and ranks, numbered as they appear. Thread-safe."""

    def __init__(self) -> None:
        self._lock = Lock()
        self.known: list[bytes] = []
        self._codes: dict[bytes, int] = {}
        self._by_sum: dict[int, int] = {}

    def codes(self, data: Bytes, words: Words, start: Ints, length: Ints) -> Ints:
        """Return the numbers of the texts at these places."""
        if not len(start):
            return start
        if int(length.max()) > _WIDE:
            return self._long(data, start, length)
        index, coded = _encoded(pa.uint64(), _sums(words, start + length, length))
        sums = coded.to_pylist()
        if not self._by_sum.keys() >= set(sums):
            self._add(data, start, length, index, sums)
        codes: Ints = np.array([self._by_sum[one] for one in sums], np.int64)[index]
        return codes

    def _add(self, data: Bytes, start: Ints, length: Ints, index: Index, sums: list[int]) -> None:
        first = np.zeros(len(sums), np.int64)
        first[index[::-1]] = np.arange(len(index))[::-1]
        for one, at in zip(sums, first.tolist(), strict=True):
            text = data[start[at] : start[at] + length[at]].tobytes()
            self._by_sum[one] = self._code(text)

    def _long(self, data: Bytes, start: Ints, length: Ints) -> Ints:
        index, texts = _different(data, start, length)
        return np.array([self._code(text) for text in texts], np.int64)[index]

    def _code(self, text: bytes) -> int:
        with self._lock:
            if text not in self._codes:
                self.known.append(text)
                self._codes[text] = len(self.known) - 1
            return self._codes[text]


@dataclass(frozen=True)
class Events:
    """The events of a block, in order."""

    kind: Bytes
    at: Ints
    #: 0 for markers, which belong to no tensor.
    tensor: Ints
    #: The number of the text; -1 for ends, which have none.
    text: Ints
    #: Bytes that an operation put out; -1 if unknown.
    size: Ints
    unreadable: int


def events(block: bytes, texts: Texts) -> Events:
    """Find the events in a block that starts with one, or with the text before the first one."""
    # Room to look beyond the last event without asking whether there is any.
    data = np.frombuffer(block + b"\0" * _LONGEST_TEXT, np.uint8)
    # The eight bytes at every place as one number, to be compared at once.
    words = np.ndarray((len(data) - 7,), "<u8", buffer=data, strides=(1,))
    keys = _keys(data, words, len(block))
    at, timed = _numbers(words, keys.time_at + len(_TIME), keys.time_end)
    tensor, tensor_end, placed = _short_numbers(words, keys.tensor_at + len(_TENSOR))
    good = timed & (placed | keys.marker) & _well_formed(data, words, keys, tensor_end)

    text = np.full(len(good), -1)
    named = np.flatnonzero(good & ~keys.ends)
    text_at = keys.start[named] + _FIRST_TEXT
    text[named] = texts.codes(data, words, text_at, keys.time_at[named] - 1 - text_at)
    size = np.full(len(good), -1)
    sized = np.flatnonzero(good & keys.ends & (data[tensor_end] == ord(",")))
    size[sized] = _sizes(data, tensor_end[sized], keys.until[sized])
    tensor[keys.marker] = 0
    if good.all():
        return Events(keys.kind, at, tensor, text, size, 0)
    bad = int(np.count_nonzero(~good))
    return Events(keys.kind[good], at[good], tensor[good], text[good], size[good], bad)


@dataclass(frozen=True)
class _Keys:
    """Where the parts of possible events lie in the block."""

    start: Ints
    until: Ints
    kind: Bytes
    ends: Bools
    marker: Bools
    time_at: Ints
    time_end: Ints
    tensor_at: Ints


def _keys(data: Bytes, words: Words, end: int) -> _Keys:
    # One look at every byte is enough: the keys of an event follow each other, colon by colon.
    colon = np.append(np.flatnonzero(data == ord(":")), [end + _COLON] * 3)
    # Most colons are distinguished by the letter before the quote.
    event = np.flatnonzero(data[colon - 2] == EVENT[_EVENT_COLON - 2])
    event = event[colon[event] >= _EVENT_COLON]
    event = event[words[colon[event] - _EVENT_COLON] == word(EVENT)]
    start = colon[event] - _EVENT_COLON
    kind = data[start + len(EVENT)]
    ends, marker = kind == ord("E"), kind == ord("i")
    time = event + 2 - ends
    time_at, next_key = colon[time] - _COLON, colon[time + 1]
    return _Keys(
        start=start,
        until=np.append(start[1:], end),
        kind=kind,
        ends=ends,
        marker=marker,
        time_at=time_at,
        time_end=next_key - np.where(marker, _TO_SCOPE, _TO_TENSOR),
        tensor_at=next_key - _TENSOR.index(b":"),
    )


def _well_formed(data: Bytes, words: Words, keys: _Keys, tensor_end: Ints) -> Bools:
    """Return which events are as Horovod writes them, and not cut by the end of the file."""
    length = keys.time_at - 1 - (keys.start + _FIRST_TEXT)
    named = (words[keys.start + len(EVENT) + 1] == word(_NAME)) & (length >= 0)
    named &= length < _LONGEST_TEXT
    unnamed = keys.time_at == keys.start + len(EVENT) + 2
    timed = (words[keys.time_at] == word(_TIME)) & (data[keys.time_end] == ord(","))
    after = data[tensor_end]
    placed = words[keys.tensor_at] == word(_TENSOR)
    # A number that the end of the file cuts is followed by nothing.
    placed &= (after == ord("}")) | (after == ord(","))
    known = keys.ends | keys.marker | (keys.kind == ord("B")) | (keys.kind == ord("X"))
    return np.asarray(known & np.where(keys.ends, unnamed, named) & timed & (placed | keys.marker))


def _numbers(words: Words, start: Ints, end: Ints) -> tuple[Ints, Bools]:
    """Read the numbers between these places eight digits at a time, and return which are valid."""
    length = end - start
    good = (length > 0) & (length <= _MOST_DIGITS)
    value, fine = _last_digits(words, end, np.clip(length, 0, 8))
    good &= fine
    if int(length.max(initial=0)) > 8:
        more, fine = _last_digits(words, end - 8, np.clip(length - 8, 0, 8))
        value += more * 100_000_000
        good &= fine
    return value, good


def _last_digits(words: Words, end: Ints, count: Ints) -> tuple[Ints, Bools]:
    digits = digits_of(words[np.maximum(end - 8, 0)])
    digits &= _OF_DIGITS[count]
    return eight(digits), others_among(digits) == 0


def _short_numbers(words: Words, start: Ints) -> tuple[Ints, Ints, Bools]:
    """Read numbers of up to seven digits, and return their ends and which are valid."""
    digits, count = leading(words[start])
    fine = (count > 0) & (count < 8)
    return number(digits, count), start + count.view(np.int64), fine


def _sums(words: Words, end: Ints, length: Ints) -> Words:
    """Return a number for each text of up to 32 letters: different texts have different numbers.

    What stands before a text is alike for all of one kind, and may be in it.
    """
    first = words[end - _USUAL]
    # Of short ones that would be what stands before the event.
    first[length < _USUAL - _FIRST_TEXT] = 0
    sums = words[end - 8] * _MIXED[0] + words[end - 16] * _MIXED[1] + first * _MIXED[2]
    longer = np.flatnonzero(length > _USUAL)
    sums[longer] += words[end[longer] - _WIDE] * _MIXED[3]
    return np.asarray(sums)


def _different(data: Bytes, start: Ints, length: Ints) -> tuple[Index, list[bytes]]:
    """Return for each place the index of its text, and every distinct text once."""
    if not len(start):
        return start.astype(np.int32), []
    width = max(int(length.max()), 1)
    letters = np.ndarray((len(data) - width, width), np.uint8, data, strides=(1, 1))[start]
    letters *= np.arange(width) < length[:, None]
    index, texts = _encoded(pa.binary(width), letters)
    return index, [text.rstrip(b"\0") for text in texts.to_pylist()]


def _encoded(kind: pa.DataType, values: npt.NDArray[Any]) -> tuple[Index, pa.Array]:
    """Return for each value its index among the distinct values, and these."""
    # Made of and into buffers: what asks Arrow for arrays of numpy loads pandas, which takes longer
    # than most timelines do.
    whole = pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])
    coded = whole.dictionary_encode()
    index = np.frombuffer(coded.indices.buffers()[1], np.int32, len(values))
    return index, coded.dictionary


def _sizes(data: Bytes, start: Ints, until: Ints) -> Ints:
    """Return bytes of the tensors whose types and shapes are there."""
    index, texts = _different(data, start, np.minimum(until - start, _LONGEST_TEXT))
    return np.array([*(_size(text) for text in texts), -1], np.int64)[index]


def _size(args: bytes) -> int:
    found = _ARGS.match(args)
    size = _ITEM_BYTES.get(found[1], -1) if found else -1
    if found is None or size < 0:
        return -1
    for dimension in found[2].replace(b",", b" ").split():
        size *= int(dimension)
    return size if size < 2**62 else -1

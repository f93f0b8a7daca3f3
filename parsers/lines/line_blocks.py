"""Blocks of bytes as arrays: where bytes, short texts and numbers are, all of them at once.

Numbers are read eight digits at a time: eight bytes are one word, the first byte the lowest one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache, cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from stallscope.arrays import arrow
from stallscope.arrays.types import Bools, Floats, Ints

#: A column of values of lines.
Column = npt.NDArray[Any]
Bytes = npt.NDArray[np.uint8]
Words = npt.NDArray[np.uint64]

_DIGIT = rb"\d"
_DIGITS = re.compile(rb"\d{1,17}")
_WORD = 8
# Reading near the end needs no check.
_PADDING = 256
# The sample by which the rarest byte of a needle is chosen.
_SAMPLE_BYTES = 1 << 14
# Checking a place that has a byte costs as much as searching this many bytes for it.
_BYTES_PER_PLACE = 16
# ``bytes.find`` is faster for bytes that are rarer than one in this many.
_BYTES_PER_FIND = 1 << 10
# Larger pieces leave the CPU's caches.
_PIECE_BYTES = 1 << 20
# Just under 32 MiB.
_LARGEST_MAPPED = 2**25 - 2**16


class Needle:
    r"""A short text that identifies lines; ``\d`` before or after it is any digit."""

    def __init__(self, needle: bytes) -> None:
        self.digit_before = needle.startswith(_DIGIT)
        self.digit_after = needle.endswith(_DIGIT)
        self.text = needle.removeprefix(_DIGIT).removesuffix(_DIGIT)
        self.bytes = np.frombuffer(self.text, np.uint8)


class LineBlock:
    """Lines as an array of bytes."""

    def __init__(self, text: bytes) -> None:
        _keep_freed_memory()
        self.text = text
        self.bytes = np.frombuffer(text + b"\0" * _PADDING, np.uint8)
        self.size = len(text)
        #: The eight bytes at every place as one number.
        self.words = np.ndarray(
            (len(self.bytes) - _WORD + 1,), "<u8", buffer=self.bytes, strides=(1,)
        )

    @cached_property
    def ends(self) -> Ints:
        """Find the place after each newline."""
        return self.having(ord("\n")) + 1

    @cached_property
    def digits_alike(self) -> bytes:
        """Return the text with ones in place of all digits."""
        text = self.bytes[: self.size]
        # Four steps on all bytes take a third of the time of ``bytes.translate``.
        above_1 = text - np.uint8(ord("1"))
        are_digits = text - np.uint8(ord("0")) < 10
        return (text - above_1 * are_digits).tobytes()

    @cached_property
    def _having(self) -> dict[int, Ints]:
        return {}

    @cached_property
    def _absent(self) -> set[int]:
        """The bytes that were searched and do not occur."""
        return set()

    @cached_property
    def _counts(self) -> Floats:
        """Estimate how often each byte occurs."""
        counts = np.bincount(self.bytes[:_SAMPLE_BYTES], minlength=256)
        return np.asarray(counts * (max(self.size, 1) / min(max(self.size, 1), _SAMPLE_BYTES)))

    @cached_property
    def _costs(self) -> Floats:
        """Estimate what it costs to find all texts that have each byte."""
        return self._counts * _BYTES_PER_PLACE + self.size

    def having(self, byte: int) -> Ints:
        """Find all places of a byte."""
        if byte not in self._having:
            places = self._few(byte)
            if places is None:
                places = np.flatnonzero(self.bytes[: self.size] == byte)
            self._having[byte] = places
            if not len(places):
                self._absent.add(byte)
            self._costs[byte] = len(places) * _BYTES_PER_PLACE
        return self._having[byte]

    def _few(self, byte: int) -> Ints | None:
        """Find the places of a rare byte one by one; None if it is not rare."""
        most = self.size // _BYTES_PER_FIND
        places: list[int] = []
        at = self.text.find(byte) if self._counts[byte] <= most else self.size
        while 0 <= at < self.size and len(places) < most:
            places.append(at)
            at = self.text.find(byte, at + 1)
        return np.array(places, np.int64) if at < 0 else None

    def places(self, needle: Needle) -> Ints:
        """Find all places of a needle, in order."""
        text = needle.text
        if not self._absent.isdisjoint(text):
            return np.zeros(0, np.int64)
        rarest = int(self._costs[needle.bytes].argmin())
        at = self.having(text[rarest]) - rarest
        at = at[(at >= needle.digit_before) & (at + len(text) + needle.digit_after <= self.size)]
        if not len(at):
            return at
        for first in range(0, len(text), _WORD):
            at = at[self.has(at + first, text[first : first + _WORD])]
        if needle.digit_before:
            at = at[self.is_digit(at - 1)]
        return at[self.is_digit(at + len(text))] if needle.digit_after else at

    def places_of_rarest(self, needles: Sequence[Needle]) -> Ints:
        """Find all places of the needle that may occur least often."""
        return self.places(min(needles, key=lambda needle: self._counts[needle.bytes].min()))

    def contains(self, needle: Needle) -> bool:
        """Whether the block has a needle."""
        if not self._absent.isdisjoint(needle.text):
            return False
        # If all of its bytes are frequent, and none was searched yet, the text is found sooner.
        is_frequent = self._costs[needle.bytes].min() > self.size
        return not (is_frequent and needle.text not in self.text) and len(self.places(needle)) > 0

    def words_at(self, at: Ints) -> Words:
        """Return the eight bytes at these places, which may lie beyond the block's end."""
        beyond = int(at.max(initial=0)) >= len(self.words)
        return self.words[np.minimum(at, self.size) if beyond else at]

    def has(self, at: Ints, text: bytes) -> Bools:
        """Return whether these places have a text."""
        matches = (self.words_at(at) & mask(len(text[:_WORD]))) == word(text[:_WORD])
        for first in range(_WORD, len(text), _WORD):
            matches &= self.has(at + first, text[first : first + _WORD])
        return np.asarray(matches)

    def numbers(self, at: Ints, most: int) -> tuple[Ints, Ints]:
        """Read numbers of at most ``most`` digits (up to 16), and return their numbers of digits."""
        alike = self._alike_numbers(at, most)
        if alike is not None:
            return alike
        digits, count = leading(self.words_at(at))
        if most <= _WORD or not (count == _WORD).any():
            return _first(digits, np.minimum(count, np.uint64(most)))
        more, further = leading(self.words_at(at + _WORD))
        # Only after eight digits.
        further = np.minimum(further, np.uint64(most - _WORD)) * (count >> np.uint64(3))
        value, length = _first(digits, count)
        rest, beyond = _first(more * (further > 0), further)
        return value * _POWERS[beyond] + rest, length + beyond

    def fixed_numbers(self, at: Ints, count: Ints) -> Ints:
        """Read numbers of so many digits each, up to 16, with blanks as zeros; 0 without digits."""
        first = np.minimum(count, _WORD)
        value = self._fixed(at, first)
        if (count > _WORD).any():
            rest = count - first
            value = value * _POWERS[rest] + self._fixed(at + first, rest)
        return value

    def _fixed(self, at: Ints, count: Ints) -> Ints:
        digits = self.words_at(at) & _MASKS[count] & _VALUES
        return number(digits, count.astype(np.uint64))

    def _alike_numbers(self, at: Ints, most: int) -> tuple[Ints, Ints] | None:
        """Read numbers with equal numbers of digits that differ in the last eight only, as times do.

        None if they are not like that, or have at most eight digits.
        """
        first = _DIGITS.match(self.text, int(at[0])) if len(at) else None
        count = 0 if first is None else len(first[0])
        if first is None or not _WORD < count <= most:
            return None
        head = self.words_at(at) & mask(count - _WORD)
        tail = digits_of(self.words_at(at + (count - _WORD)))
        if (head != head[0]).any() or others_among(tail).any() or self.is_digit(at + count).any():
            return None
        return eight(tail) + int(first[0][:-_WORD]) * 10**_WORD, np.full(len(at), count)

    def words_of(self, start: Ints, length: Ints) -> list[Words]:
        """Return texts of these lengths as numbers of eight bytes each."""
        most = int(length.max(initial=0))
        if (length == most).all():
            # Without a mask for each text.
            masks = [mask(min(most - first, _WORD)) for first in range(0, most, _WORD)]
            return [self.words_at(start + at * _WORD) & each for at, each in enumerate(masks)]
        return [
            self.words_at(start + first) & _MASKS[np.minimum(np.maximum(length - first, 0), _WORD)]
            for first in range(0, most, _WORD)
        ]

    def texts_until(self, start: Ints, byte: int, most: int) -> tuple[Ints, list[bytes], Ints]:
        """Read texts up to a byte, which is no part of them.

        Of texts without the byte, at least ``most`` bytes are read.

        Returns:
            the index of each place's text among the texts, the texts, and their lengths at each place.
        """
        if not len(start):
            return start, [], start
        # Equal texts often follow each other: only the first of them is read.
        heads = self.words_at(start)
        begins = np.append(True, heads[1:] != heads[:-1])
        index, texts, length = self._texts_until(start[begins], byte, most)
        group = np.cumsum(begins) - 1
        index, length = index[group], length[group]
        ended = [text + bytes([byte]) * (len(text) < most) for text in texts]
        others = np.flatnonzero(self._differ(start, index, ended))
        if len(others):
            other_index, other_texts, length[others] = self._texts_until(start[others], byte, most)
            index[others] = other_index + len(texts)
            texts += other_texts
        return index, texts, length

    def _differ(self, start: Ints, index: Ints, texts: list[bytes]) -> Bools:
        """Return whether other bytes than these texts, which have the same first word, are there."""
        differ = np.zeros(len(start), bool)
        for first in range(_WORD, max(map(len, texts)), _WORD):
            parts = [text[first : first + _WORD] for text in texts]
            masks = np.array([mask(len(part)) for part in parts])[index]
            words = np.array([word(part) for part in parts])[index]
            differ |= (self.words_at(start + first) & masks) != words
        return differ

    def _texts_until(self, start: Ints, byte: int, most: int) -> tuple[Ints, list[bytes], Ints]:
        words, length = [], np.zeros(len(start), np.uint64)
        reads_on, ends = np.full(len(start), ~np.uint64(0)), word(bytes([byte]) * _WORD)
        for first in range(0, most, _WORD):
            text = self.words_at(start + first)
            difference = text ^ ends
            matches = (difference - _ONES) & ~difference & _TOP_BITS
            before = _before_lowest(matches) & reads_on
            words.append(text & before)
            length += ((before & _ONES) * _ONES) >> np.uint64(56)
            reads_on *= matches == 0
            if not reads_on.any():
                break
        index, texts = _distinct_rows(np.stack(words, axis=1))
        return index.astype(np.int64), texts, length.view(np.int64)

    def distinct(self, start: Ints, length: Ints) -> tuple[npt.NDArray[np.int32], list[bytes]]:
        """Return the index of each place's text among the distinct texts, and these."""
        count = max(-(-int(length.max(initial=0)) // _WORD), 1)
        masks = np.where(
            np.arange(count * _WORD) < np.arange(count * _WORD + 1)[:, None],
            np.uint8(255),
            np.uint8(0),
        )
        words = np.ndarray((self.size + 1, count), "<u8", self.bytes, strides=(1, _WORD))[start]
        words &= masks.view("<u8")[length]
        return _distinct_rows(words)

    def is_digit(self, at: Ints) -> Bools:
        """Return whether there are digits at these places."""
        return np.asarray(self.bytes[at] - np.uint8(ord("0")) < 10)

    def lines_of(self, at: Ints) -> Ints:
        """Return the numbers of the lines that contain these places."""
        return np.searchsorted(self.ends, at, "right")


@cache
def _keep_freed_memory() -> None:
    """Make the C library keep the memory of one block's arrays for the next block.

    glibc returns freed memory beyond twice the size of the largest array, up to 32 MiB, that it has
    mapped and freed. Getting it back, page by page, takes a third of the time of reading a trace.
    """
    np.empty(_LARGEST_MAPPED, np.uint8)


def sample_parts(data: bytes, part_bytes: int) -> list[bytes]:
    """Return whole lines from the start, the middle and the end of a file, or all of a short one."""
    if len(data) <= 3 * part_bytes:
        return [data]
    middle, last = (data[at : at + part_bytes] for at in (len(data) // 2, len(data) - part_bytes))
    return [
        data[:part_bytes].rpartition(b"\n")[0],
        middle.partition(b"\n")[2].rpartition(b"\n")[0],
        last.partition(b"\n")[2],
    ]


def pieces_of(text: bytes, begin: Ints, end: Ints) -> pa.Array:
    """Return pieces of a text that follow each other."""
    # Every second entry is the text between two pieces.
    zero = int(begin[0]) if len(begin) else 0
    offsets = np.append(np.stack([begin, end], axis=1).ravel(), end[-1:]) - zero
    every = pa.Array.from_buffers(
        pa.binary(),
        2 * len(begin),
        [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(memoryview(text)[zero:])],
    )
    return every.take(arrow.array(np.arange(0, 2 * len(begin), 2)))


def texts_of(text: bytes, start: Ints, end: Ints) -> pa.Array:
    """Return pieces of a text; those in order are copied together."""
    if len(start) > 1 and (start[1:] >= end[:-1]).all() and (end >= start).all():
        return pieces_of(text, start, end)
    pieces = [text[first:last] for first, last in zip(start.tolist(), end.tolist(), strict=True)]
    offsets = np.cumsum([0, *map(len, pieces)], dtype=np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(pieces))]
    return pa.Array.from_buffers(pa.binary(), len(pieces), buffers)


def lengths_of(texts: pa.Array) -> Ints:
    """Return the numbers of bytes of texts."""
    return arrow.numbers(pc.binary_length(texts)).astype(np.int64)


def groups_of(texts: pa.Array, expression: str) -> tuple[Bools, dict[str, pa.Array]]:
    """Return which texts match an expression for RE2, and of these the texts of its named groups."""
    parts = pc.extract_regex(texts, expression)
    matched = np.asarray(arrow.numbers(parts.is_valid()) == 1)
    groups = (parts if matched.all() else parts.filter(arrow.array(matched))).flatten()
    return matched, dict(zip((field.name for field in parts.type), groups, strict=True))


def contains_any(data: bytes, needles: Sequence[Needle]) -> bool:
    """Whether a text contains any of these."""
    overlap = max(len(needle.text) for needle in needles) + 2
    pieces = (
        LineBlock(data[first : first + _PIECE_BYTES + overlap])
        for first in range(0, len(data), _PIECE_BYTES)
    )
    return any(piece.contains(needle) for piece in pieces for needle in needles)


def _distinct_rows(words: Words) -> tuple[npt.NDArray[np.int32], list[bytes]]:
    """Return the index of each text among the distinct texts, and these.

    Args:
        words: the texts as numbers of eight bytes each: texts × numbers.
    """
    if not len(words):
        return np.zeros(0, np.int32), []
    # Equal texts often follow each other.
    changed = np.ones(len(words), bool)
    changed[1:] = words[1:, 0] != words[:-1, 0]
    for column in words.T[1:]:
        changed[1:] |= column[1:] != column[:-1]
    first = words[changed]
    # From and to buffers: converting numpy's arrays would import pandas, which takes longer than
    # reading most timelines.
    buffers = [None, pa.py_buffer(first)]
    width = pa.binary(words.shape[1] * _WORD)
    coded = pa.Array.from_buffers(width, len(first), buffers).dictionary_encode()
    index = np.frombuffer(coded.indices.buffers()[1], np.int32, len(first))
    texts = [text.rstrip(b"\0") for text in coded.dictionary.to_pylist()]
    return index[np.cumsum(changed) - 1], texts


def word(text: bytes) -> np.uint64:
    """Return a text of up to eight bytes as a number."""
    return np.uint64(int.from_bytes(text, "little"))


def mask(length: int) -> np.uint64:
    """Return the mask of a word's first bytes."""
    return np.uint64((1 << 8 * length) - 1)


_MASKS = np.array([mask(size) for size in range(_WORD + 1)])
_ZEROS = word(b"00000000")
# A digit's value is in the lower half of its byte; that of a blank is 0.
_VALUES = word(b"\x0f" * 8)
_ABOVE_9, _TOP_BITS = word(b"\x76" * 8), word(b"\x80" * 8)
_ONES = word(b"\x01" * 8)
_POWERS = 10 ** np.arange(_WORD + 1)


def digits_of(words: Words) -> Words:
    """Convert digits in words to their values; other bytes become values above 9."""
    return np.asarray(words ^ _ZEROS)


def others_among(digits: Words) -> Words:
    """Set the top bits of bytes that are not digits, up to the first byte beyond ASCII."""
    return np.asarray(((digits + _ABOVE_9) | digits) & _TOP_BITS)


def leading(words: Words) -> tuple[Words, Words]:
    """Return the digits at the start of words, with all other bytes 0, and their number."""
    digits = digits_of(words)
    others = others_among(digits)
    before = _before_lowest(others)
    count = ((before & _ONES) * _ONES) >> np.uint64(56)
    return digits & before, count


def _before_lowest(top_bits: Words) -> Words:
    """Return masks of the bytes before the lowest one with its top bit set; of all if none has it."""
    return np.asarray(((top_bits & (~top_bits + np.uint64(1))) >> np.uint64(7)) - np.uint64(1))


def number(digits: Words, count: Words) -> Ints:
    """Return the numbers of the first digits of words."""
    # Without digits all bytes are 0 already; no CPU shifts by 64.
    return eight(digits << ((np.uint64(8) - count) * np.uint64(8) & np.uint64(63)))


def _first(digits: Words, count: Words) -> tuple[Ints, Ints]:
    return number(digits, count), count.view(np.int64)


def eight(digits: Words) -> Ints:
    """Return the numbers of eight digits: join pairs, then fours, then all."""
    digits = digits * np.uint64(10 * 2**8 + 1) >> np.uint64(8)
    digits &= np.uint64(0x00FF00FF00FF00FF)
    digits = digits * np.uint64(100 * 2**16 + 1) >> np.uint64(16)
    digits &= np.uint64(0x0000FFFF0000FFFF)
    return (digits * np.uint64(10_000 * 2**32 + 1) >> np.uint64(32)).view(np.int64)

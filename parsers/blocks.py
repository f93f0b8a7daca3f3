"""Blocks of bytes as arrays: where bytes, short texts and numbers are, all of them at once.

Numbers are read eight digits at a time: eight bytes are one word, the first byte the lowest one.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]
Bools = npt.NDArray[np.bool_]

_DIGIT = rb"\d"
_WORD = 8
# Places near the end need no check.
_PADDING = 256
# The rarest byte of a needle is chosen from so many bytes.
_SAMPLE_BYTES = 1 << 14
# Looking for a byte costs as much as looking at so many places that have it.
_BYTES_PER_PLACE = 16


class Needle:
    r"""A short text by which lines are found; ``\d`` before or after it is any digit."""

    def __init__(self, needle: bytes) -> None:
        self.digit_before = needle.startswith(_DIGIT)
        self.digit_after = needle.endswith(_DIGIT)
        self.text = needle.removeprefix(_DIGIT).removesuffix(_DIGIT)


class LineBlock:
    """Lines as an array of bytes."""

    def __init__(self, text: bytes) -> None:
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
    def _having(self) -> dict[int, Ints]:
        return {}

    @cached_property
    def _counts(self) -> Ints:
        """Estimate how often each byte occurs."""
        counts = np.bincount(self.bytes[:_SAMPLE_BYTES], minlength=256)
        return np.asarray(counts * (max(self.size, 1) / min(max(self.size, 1), _SAMPLE_BYTES)))

    def having(self, byte: int) -> Ints:
        """Find all places of a byte."""
        if byte not in self._having:
            self._having[byte] = np.flatnonzero(self.bytes[: self.size] == byte)
        return self._having[byte]

    def places(self, needle: Needle) -> Ints:
        """Find all places of a needle, in order."""
        text = needle.text
        rarest = min(range(len(text)), key=lambda at: self._cost(text[at]))
        at = self.having(text[rarest]) - rarest
        at = at[(at >= needle.digit_before) & (at + len(text) + needle.digit_after <= self.size)]
        for first in range(0, len(text), _WORD):
            at = at[self.has(at + first, text[first : first + _WORD])]
        if needle.digit_before:
            at = at[self.is_digit(at - 1)]
        return at[self.is_digit(at + len(text))] if needle.digit_after else at

    def words_at(self, at: Ints) -> Words:
        """Return the eight bytes at these places, which may lie beyond the block's end."""
        beyond = int(at.max(initial=0)) >= len(self.words)
        return self.words[np.minimum(at, self.size) if beyond else at]

    def has(self, at: Ints, text: bytes) -> Bools:
        """Return which of these places have a text."""
        found = (self.words_at(at) & mask(len(text[:_WORD]))) == word(text[:_WORD])
        for first in range(_WORD, len(text), _WORD):
            found &= self.has(at + first, text[first : first + _WORD])
        return np.asarray(found)

    def numbers(self, at: Ints, most: int) -> tuple[Ints, Ints]:
        """Read numbers of at most so many digits (16), and return how many digits they have."""
        digits, count = leading(self.words_at(at))
        if most <= _WORD or not (count == _WORD).any():
            return _first(digits, np.minimum(count, np.uint64(most)))
        more, further = leading(self.words_at(at + _WORD))
        # Only after eight digits.
        further = np.minimum(further, np.uint64(most - _WORD)) * (count >> np.uint64(3))
        value, length = _first(digits, count)
        rest, beyond = _first(more * (further > 0), further)
        return value * _POWERS[beyond] + rest, length + beyond

    def words_of(self, start: Ints, length: Ints) -> list[Words]:
        """Return texts of these lengths as numbers of eight bytes each."""
        masks = np.array([mask(size) for size in range(_WORD + 1)])
        return [
            self.words_at(start + first) & masks[np.clip(length - first, 0, _WORD)]
            for first in range(0, int(length.max(initial=0)), _WORD)
        ]

    def distinct(self, start: Ints, length: Ints) -> tuple[npt.NDArray[np.int32], list[bytes]]:
        """Return for each place the index of its text, and every distinct text once."""
        if not len(start):
            return np.zeros(0, np.int32), []
        width = max(-(-int(length.max(initial=0)) // _WORD), 1) * _WORD
        masks = np.where(
            np.arange(width) < np.arange(width + 1)[:, None], np.uint8(255), np.uint8(0)
        )
        words = np.ndarray((self.size + 1, width // _WORD), "<u8", self.bytes, strides=(1, _WORD))[
            start
        ]
        words &= masks.view("<u8")[length]
        # Made of and into buffers: what asks Arrow for arrays of numpy loads pandas, which takes longer
        # than most timelines do.
        buffers = [None, pa.py_buffer(words)]
        coded = pa.Array.from_buffers(pa.binary(width), len(start), buffers).dictionary_encode()
        index = np.frombuffer(coded.indices.buffers()[1], np.int32, len(start))
        return index, [text.rstrip(b"\0") for text in coded.dictionary.to_pylist()]

    def is_digit(self, at: Ints) -> Bools:
        """Whether there are digits at these places."""
        return np.asarray(self.bytes[at] - np.uint8(ord("0")) < 10)

    def lines_of(self, at: Ints) -> Ints:
        """Return the numbers of the lines that contain these places."""
        return np.searchsorted(self.ends, at, "right")

    def _cost(self, byte: int) -> float:
        found = byte in self._having
        count = len(self._having[byte]) if found else float(self._counts[byte])
        return count * _BYTES_PER_PLACE + (0 if found else self.size)


def word(text: bytes) -> np.uint64:
    """Return a text of up to eight bytes as a number."""
    return np.uint64(int.from_bytes(text, "little"))


def mask(length: int) -> np.uint64:
    """Return the mask of a word's first bytes."""
    return np.uint64((1 << 8 * length) - 1)


_ZEROS = word(b"00000000")
_ABOVE_9, _TOP_BITS = word(b"\x76" * 8), word(b"\x80" * 8)
_ONES = word(b"\x01" * 8)
_POWERS = 10 ** np.arange(_WORD + 1)


def digits_of(words: Words) -> Words:
    """Return words whose bytes are the values of digits, where they were digits."""
    return np.asarray(words ^ _ZEROS)


def others_among(digits: Words) -> Words:
    """Return the top bits of the bytes that are no digits, up to the first byte beyond ASCII."""
    return np.asarray(((digits + _ABOVE_9) | digits) & _TOP_BITS)


def leading(words: Words) -> tuple[Words, Words]:
    """Return the digits at the start of words, all other bytes 0, and how many these are."""
    digits = digits_of(words)
    others = others_among(digits)
    # The lowest byte that is no digit, as a mask of those before it.
    before = ((others & (~others + np.uint64(1))) >> np.uint64(7)) - np.uint64(1)
    count = ((before & _ONES) * _ONES) >> np.uint64(56)
    return digits & before, count


def number(digits: Words, count: Words) -> Ints:
    """Return the numbers of the first digits of words."""
    # Without any, all bytes are 0 already; no CPU shifts by 64.
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

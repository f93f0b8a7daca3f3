"""Blocks of bytes as arrays: where bytes, short texts and numbers are, all of them at once.

Numbers are read eight digits at a time: eight bytes are one word, the first byte the lowest one.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]
Bools = npt.NDArray[np.bool_]

_DIGIT = rb"\d"
_WORD = 8
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


class Block:
    """Lines as an array of bytes."""

    def __init__(self, text: bytes) -> None:
        self.text = text
        # Padded, so that places near the end need no check.
        self.bytes = np.frombuffer(text + b"\0" * _WORD, np.uint8)
        self.size = len(text)
        #: The eight bytes at every place as one number.
        self.words = np.ndarray((self.size + 1,), "<u8", buffer=self.bytes, strides=(1,))
        #: The place after each newline.
        self.ends = self.having(ord("\n")) + 1

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
            part = text[first : first + _WORD]
            at = at[self.words[at + first] & mask(len(part)) == word(part)]
        if needle.digit_before:
            at = at[self.is_digit(at - 1)]
        return at[self.is_digit(at + len(text))] if needle.digit_after else at

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


def eight(digits: Words) -> Ints:
    """Return the numbers of eight digits: join pairs, then fours, then all."""
    digits = digits * np.uint64(10 * 2**8 + 1) >> np.uint64(8)
    digits &= np.uint64(0x00FF00FF00FF00FF)
    digits = digits * np.uint64(100 * 2**16 + 1) >> np.uint64(16)
    digits &= np.uint64(0x0000FFFF0000FFFF)
    return (digits * np.uint64(10_000 * 2**32 + 1) >> np.uint64(32)).view(np.int64)

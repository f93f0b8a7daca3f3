"""Numbers at many places of a block of bytes, eight digits at a time.

Eight bytes are one word, the first byte the lowest one.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]


def word(text: bytes) -> np.uint64:
    """A text of up to eight bytes."""
    return np.uint64(int.from_bytes(text, "little"))


_ZEROS = word(b"00000000")
_ABOVE_9, _TOP_BITS = word(b"\x76" * 8), word(b"\x80" * 8)
_ONES = word(b"\x01" * 8)


def digits_of(words: Words) -> Words:
    """Words whose bytes are the values of digits, where they were digits."""
    return np.asarray(words ^ _ZEROS)


def others_among(digits: Words) -> Words:
    """The top bits of the bytes that are no digits, up to the first one that is not even ASCII."""
    return np.asarray(((digits + _ABOVE_9) | digits) & _TOP_BITS)


def leading(words: Words) -> tuple[Words, Words]:
    """The digits that words begin with, all else in them 0; and how many these are."""
    digits = digits_of(words)
    others = others_among(digits)
    # The lowest byte that is no digit, as a mask of those before it.
    before = ((others & (~others + np.uint64(1))) >> np.uint64(7)) - np.uint64(1)
    count = ((before & _ONES) * _ONES) >> np.uint64(56)
    return digits & before, count


def number(digits: Words, count: Words) -> Ints:
    """The number that the first ones of a word's digits are."""
    # Of none, all bytes are 0 already; no processor shifts by 64.
    return eight(digits << ((np.uint64(8) - count) * np.uint64(8) & np.uint64(63)))


def eight(digits: Words) -> Ints:
    """The number that eight digits are: pairs, fours, all."""
    digits = digits * np.uint64(10 * 2**8 + 1) >> np.uint64(8)
    digits &= np.uint64(0x00FF00FF00FF00FF)
    digits = digits * np.uint64(100 * 2**16 + 1) >> np.uint64(16)
    digits &= np.uint64(0x0000FFFF0000FFFF)
    return (digits * np.uint64(10_000 * 2**32 + 1) >> np.uint64(32)).view(np.int64)

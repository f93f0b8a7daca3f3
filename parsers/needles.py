"""Short texts by which lines are known, and where they are in a block of bytes: all of them at once."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt

from .digits import Ints, word

_DIGIT = rb"\d"
_WORD = 8
# The rarest letter of a sign is chosen from so many bytes.
_SAMPLE_BYTES = 1 << 14
# Looking for a letter costs as much as looking at so many places that have it.
_BYTES_PER_PLACE = 16


class Sign:
    r"""A text that lines have in them, or at their ends; ``\d`` before or after it is any digit."""

    def __init__(self, sign: bytes) -> None:
        self.digit_before = sign.startswith(_DIGIT)
        self.digit_behind = sign.endswith(_DIGIT)
        self.text = sign.removeprefix(_DIGIT).removesuffix(_DIGIT)

    def find(self, text: bytes, start: int, end: int) -> int:
        """Where it is first between two places; -1 where it is not. For few places in short texts."""
        at = text.find(self.text, start, end)
        while at >= 0 and not self._digits(text, at):
            at = text.find(self.text, at + 1, end)
        return at

    def rfind(self, text: bytes, start: int, end: int) -> int:
        """Where it is last."""
        at = text.rfind(self.text, start, end)
        while at >= 0 and not self._digits(text, at):
            at = text.rfind(self.text, start, at + len(self.text) - 1)
        return at

    def _digits(self, text: bytes, at: int) -> bool:
        behind = at + len(self.text)
        fits = not self.digit_before or text[max(at - 1, 0) : at].isdigit()
        return fits and (not self.digit_behind or text[behind : behind + 1].isdigit())


class Block:
    """Whole lines, with what makes it cheap to ask where something is in them."""

    def __init__(self, lines: bytes) -> None:
        # Room to look beyond the end without asking whether there is any.
        self.bytes = np.frombuffer(lines + b"\0" * _WORD, np.uint8)
        self.size = len(lines)
        #: The eight bytes at every place as one number.
        self.words = np.ndarray((self.size + 1,), "<u8", buffer=self.bytes, strides=(1,))
        #: After each line's end.
        self.ends = self.having(ord("\n")) + 1

    @cached_property
    def _having(self) -> dict[int, Ints]:
        return {}

    @cached_property
    def _counts(self) -> Ints:
        """How often each byte is in some of the block."""
        counts = np.bincount(self.bytes[:_SAMPLE_BYTES], minlength=256)
        return np.asarray(counts * (max(self.size, 1) / min(max(self.size, 1), _SAMPLE_BYTES)))

    def having(self, byte: int) -> Ints:
        """Where a byte is."""
        if byte not in self._having:
            self._having[byte] = np.flatnonzero(self.bytes[: self.size] == byte)
        return self._having[byte]

    def places(self, sign: Sign) -> Ints:
        """Where a sign is, in order."""
        text = sign.text
        rarest = min(range(len(text)), key=lambda at: self._cost(text[at]))
        at = self.having(text[rarest]) - rarest
        at = at[(at >= sign.digit_before) & (at + len(text) + sign.digit_behind <= self.size)]
        for first in range(0, len(text), _WORD):
            part = text[first : first + _WORD]
            at = at[self.words[at + first] & mask(len(part)) == word(part)]
        if sign.digit_before:
            at = at[self.is_digit(at - 1)]
        return at[self.is_digit(at + len(text))] if sign.digit_behind else at

    def is_digit(self, at: Ints) -> npt.NDArray[np.bool_]:
        """Whether there are digits at these places."""
        return np.asarray(self.bytes[at] - np.uint8(ord("0")) < 10)

    def lines_of(self, at: Ints) -> Ints:
        """In which of the lines these places are."""
        return np.searchsorted(self.ends, at, "right")

    def _cost(self, byte: int) -> float:
        looked = byte in self._having
        count = len(self._having[byte]) if looked else float(self._counts[byte])
        return count * _BYTES_PER_PLACE + (0 if looked else self.size)


def mask(length: int) -> np.uint64:
    return np.uint64((1 << 8 * length) - 1)

"""Match a pattern against all lines of a block at once, as a regular expression does one by one.

All lines advance together, along the first path that the expression would try. Most matching lines match
on it; the expression itself checks the others.
"""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from stallscope.arrays.types import Bools, Ints

from .lines.line_blocks import LineBlock, Needle
from .lines.timestamp_columns import is_blank, moments

Column = npt.NDArray[Any]

#: Numbers are printed as wide as the largest one: ``[  0/500]``.
MOST_PADDING = 12
#: The most digits of whole numbers, and before the point of others.
MOST_DIGITS: Mapping[str, int] = {
    "rank": 6,
    "epoch": 9,
    "step": 12,
    "steps": 12,
    "seconds": 9,
    "mean_seconds": 9,
    "ms": 12,
    "data": 9,
    "mean_data": 9,
    "rate": 12,
    "mean_rate": 12,
}
#: The fields of durations, with the number of their units in a second.
DURATIONS: Mapping[str, int] = {"seconds": 1, "ms": 1000}
#: Fields with a fraction or an exponent.
FLOATS = frozenset({"seconds", "mean_seconds", "ms", "data", "mean_data", "rate", "mean_rate"})
MOST_FRACTION_DIGITS, MOST_EXPONENT_DIGITS = 20, 2
# Numbers with more digits after the point are left to the expression.
_MOST_READ_DIGITS = 12
# Up to these limits, quotients and products of a number and a power of ten are exact.
_MOST_EXACT_DIGITS, _MOST_EXACT_POWER = 15, 22
# Lines with more blanks are left to the expression.
_MOST_BLANKS = 64
# The bytes from which the frequency of a text is estimated.
_SAMPLE_BYTES = 16 << 10
_LOWER_CASE = np.uint8(0x20)
_OF_WORDS = np.isin(np.arange(256), list((string.ascii_letters + string.digits + "_.").encode()))


class PatternPart(NamedTuple):
    """A part of a pattern.

    ``text`` is without blanks; ``blanks`` are any of them; ``skip`` goes on to the first place of its
    text, or to the first blank; all other kinds are names of fields.
    """

    kind: str
    text: bytes = b""
    #: Whether the text after a skip has a blank before it.
    blank_before: bool = False
    #: The field of the number before the text after a skip; empty without one.
    number: str = ""


def longest_text(parts: Sequence[PatternPart]) -> bytes:
    """Return a pattern's longest text."""
    return max((part.text for part in parts), key=len, default=b"")


def having(block: LineBlock, parts: Sequence[PatternPart]) -> Ints:
    """Return the lines that contain the pattern's rarest text; no other line can match."""
    sample = block.text[:_SAMPLE_BYTES]
    texts = [part.text for part in parts if part.text]
    if not texts:
        return np.arange(len(block.ends))
    rarest = min(texts, key=lambda text: (sample.count(text), -len(text)))
    line = block.lines_of(_places(block, rarest))
    return line[np.flatnonzero(np.append(True, line[1:] != line[:-1])[: len(line)])]


def having_all(block: LineBlock, parts: Sequence[PatternPart], line: Ints) -> Ints:
    """Return which of these lines contain all texts of the pattern; no other one can match."""
    for text in {part.text for part in parts if part.text}:
        if len(line):
            line = line[np.isin(line, block.lines_of(_places(block, text)))]
    return line


def _places(block: LineBlock, text: bytes) -> Ints:
    r"""Find all places of a text, including one with ``\d``, which would be any digit in a needle."""
    first = 1 if text.startswith(rb"\d") else 0
    inner = text[first:-1] if text[first:].endswith(rb"\d") else text[first:]
    at = block.places(Needle(inner)) - first
    return at if inner == text else at[block.has(np.maximum(at, 0), text)]


class Walk:
    """Follows a pattern along lines of a block, and drops those that stop matching.

    Args:
        line: the numbers of the lines.
        start: where they start.
        end: where the part of them that counts ends.
    """

    def __init__(self, block: LineBlock, line: Ints, start: Ints, end: Ints) -> None:
        self._block = block
        self._line = line
        self._at = start
        self._end = end
        self._fields: dict[str, Column] = {}

    def along(self, parts: Sequence[PatternPart]) -> tuple[Ints, dict[str, Column]]:
        """Follow a pattern; return the lines known to match, and their values.

        Fields are columns of whole numbers or of floats (``FLOATS``); the time is four columns, as in a
        ``Timestamp``.
        """
        for part in parts:
            if part.kind == "text":
                self._text(part.text)
            elif part.kind == "blanks":
                self._blanks()
            elif part.kind == "skip":
                self._skip(part)
            elif part.kind == "time":
                self._time()
            else:
                self._number(part.kind)
        self._keep(self._at <= self._end)
        return self._line, self._fields

    def _keep(self, kept: Bools) -> None:
        if kept.all():
            return
        self._line, self._at, self._end = self._line[kept], self._at[kept], self._end[kept]
        self._fields = {name: column[kept] for name, column in self._fields.items()}

    def _text(self, text: bytes) -> None:
        self._keep(self._block.has(self._at, text))
        self._at = self._at + len(text)

    def _blanks(self) -> None:
        for walked in range(_MOST_BLANKS):
            blank = is_blank(self._block.bytes[self._at])
            if not walked:
                self._keep(blank)
                self._at = self._at + 1
            elif blank.any():
                self._at = self._at + blank
            else:
                return
        self._keep(~is_blank(self._block.bytes[self._at]))

    def _skip(self, part: PatternPart) -> None:
        block = self._block
        if part.text:
            places = _places(block, part.text)
            if part.blank_before:
                places = places[is_blank(block.bytes[np.maximum(places - 1, 0)])]
        else:
            places = np.flatnonzero(is_blank(block.bytes[: block.size]))
        before = self._at
        index = np.searchsorted(places, before + (part.blank_before and bool(part.text)))
        self._at = np.append(places, block.size + 1)[index]
        inside = self._at < self._end
        self._keep(inside)
        if part.number:
            self._number_before(part, before[inside])
        self._at = self._at + len(part.text)

    def _number_before(self, part: PatternPart, first: Ints) -> None:
        """Read the numbers right before texts.

        Args:
            part: the skipped part.
            first: where the search for the texts started.
        """
        block, start = self._block, self._at
        for _ in range(_MOST_BLANKS if part.blank_before else 0):
            blank = is_blank(block.bytes[start - 1])
            if not blank.any():
                break
            start = start - blank
        end = start
        for _ in range(MOST_DIGITS[part.number]):
            start = start - block.is_digit(start - 1)
        value, count = block.numbers(start, MOST_DIGITS[part.number])
        self._fields[part.number] = value
        begins = (start == first) | ((start > first) & ~_OF_WORDS[block.bytes[start - 1]])
        self._keep((count > 0) & (start + count == end) & begins)

    def _time(self) -> None:
        timestamps = moments(self._block, self._at)
        self._at = timestamps.end
        self._fields |= {
            "ns": timestamps.ns,
            "zone_known": timestamps.zone_known,
            "resolution_ns": timestamps.resolution_ns,
            "year_known": timestamps.year_known,
        }
        self._keep(timestamps.exists & ~timestamps.unclear)

    def _number(self, name: str) -> None:
        block = self._block
        for _ in range(MOST_PADDING):
            blank = block.bytes[self._at] == ord(" ")
            if not blank.any():
                break
            self._at = self._at + blank
        value, count = block.numbers(self._at, MOST_DIGITS[name])
        self._fields[name] = value
        self._at = self._at + count
        self._keep(count > 0)
        if name in FLOATS:
            self._fraction(name, count[count > 0])

    def _fraction(self, name: str, before: Ints) -> None:
        """Read the fraction and the exponent of a number with ``before`` digits in its integer part."""
        value, count = self._block.numbers(self._at + 1, _MOST_READ_DIGITS)
        count = np.where(self._block.bytes[self._at] == ord("."), count, 0)
        whole = self._fields[name] * 10**count + np.where(count > 0, value, 0)
        self._at = self._at + np.where(count > 0, count + 1, 0)
        whole_read = (count < _MOST_READ_DIGITS) | ~self._block.is_digit(self._at)
        power = self._exponent() - count
        exact = (
            whole_read
            & (before + count <= _MOST_EXACT_DIGITS)
            & (np.abs(power) <= _MOST_EXACT_POWER)
        )
        unit = 10.0 ** np.minimum(np.abs(power), _MOST_EXACT_POWER)
        self._fields[name] = np.where(power < 0, whole / unit, whole * unit)
        self._keep(exact)

    def _exponent(self) -> Ints:
        """Read the exponents after numbers, 0 if there is none."""
        byte = self._block.bytes
        has_exponent = (byte[self._at] | _LOWER_CASE) == ord("e")
        if not has_exponent.any():
            return np.zeros(len(self._at), np.int64)
        sign = byte[self._at + 1]
        signed = (sign == ord("+")) | (sign == ord("-"))
        value, count = self._block.numbers(self._at + 1 + signed, MOST_EXPONENT_DIGITS + 1)
        has_exponent &= (count > 0) & (count <= MOST_EXPONENT_DIGITS)
        self._at = self._at + np.where(has_exponent, 1 + signed + count, 0)
        return np.where(has_exponent, np.where(sign == ord("-"), -value, value), 0)

"""Read the timestamps of many lines at once, as ``timestamps`` reads each.

Dates repeat from line to line: ``timestamps`` itself reads each of them once. All else in a timestamp is
digits. Rare forms are marked as unclear, and the caller reads them one by one.
"""

from __future__ import annotations

import string
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from .blocks import (
    Block,
    Bools,
    Bytes,
    Ints,
    Words,
    digits_of,
    eight,
    mask,
    others_among,
    word,
)
from .timestamps import LATEST_SECOND, read_moment

_SECOND_NS = 10**9
_CLOCK = b"00:00:00"
_COLONS = word(b"\0\0\xff\0\0\xff")
# The seconds of a one in each byte of a clock.
_CLOCK_S = {0: 36_000, 1: 3_600, 3: 600, 4: 60, 6: 10, 7: 1}
# More digits of a second do not count.
_MOST_DIGITS = 9
_POWERS = 10 ** np.arange(_MOST_DIGITS + 1)
_MOST_SECOND_DIGITS, _MOST_FRACTION_DIGITS = 10, 12
# The most blanks and brackets before the timestamp at the start of a line.
_MOST_BEFORE = 8
_DAY_MINUTES = 1440
_GOES_ON = np.isin(np.arange(256), list((string.ascii_letters + string.digits + "_.,").encode()))


class _Form(NamedTuple):
    """A form of timestamps of whole seconds: a date, a clock, and sometimes a year after it."""

    #: Bytes among the first eight.
    known_by: tuple[tuple[int, bytes], ...]
    clock_at: int
    length: int


_ISO = _Form(((4, b"-"), (7, b"-")), 11, 19)
_MONTH_FIRST = _Form(((2, b"/"), (5, b"/")), 11, 19)
_LOG4J = _Form(((2, b"/"), (5, b"/")), 9, 17)
_IN_WORDS = _Form(((3, b" "), (7, b" ")), 11, 24)


@dataclass
class Moments:
    """The timestamps at several places."""

    #: Where a timestamp ends, if there is one.
    end: Ints
    there: Bools
    #: Where it is unclear whether there is one, and which.
    unclear: Bools
    #: As a ``Timestamp`` has them.
    ns: Ints
    zone_known: Bools
    resolution_ns: Ints


def moments(block: Block, at: Ints) -> Moments:
    """Read the timestamps at these places, as ``MOMENT`` finds and ``read_moment`` reads them."""
    at = at + (block.bytes[at] == ord("["))
    found = _read(block, at, (_ISO, _MONTH_FIRST, _LOG4J, _IN_WORDS))
    _read_seconds(block, at, found)
    found.end += block.bytes[found.end] == ord("]")
    return found


def line_starts(block: Block, at: Ints) -> Moments:
    """Read the timestamps at the starts of lines, as ``read_timestamp`` reads them."""
    at = at.copy()
    for _ in range(_MOST_BEFORE):
        byte = block.bytes[at]
        more = is_blank(byte) | (byte == ord("["))
        if not more.any():
            break
        at += more
    return _read(block, at, (_ISO, _LOG4J, _IN_WORDS), padded=True)


def is_blank(byte: Bytes) -> Bools:
    """Return which bytes are blanks within a line, as regular expressions define them."""
    return np.asarray((byte == ord(" ")) | ((byte - np.uint8(9) < 5) & (byte != ord("\n"))))


def _read(block: Block, at: Ints, forms: Sequence[_Form], *, padded: bool = False) -> Moments:
    """Read timestamps of these forms.

    Args:
        padded: whether there may be blanks among the digits of fractions.
    """
    count = len(at)
    found = Moments(
        end=at.copy(),
        there=np.zeros(count, bool),
        unclear=np.zeros(count, bool),
        ns=np.zeros(count, np.int64),
        zone_known=np.zeros(count, bool),
        resolution_ns=np.full(count, _SECOND_NS),
    )
    first = block.words[at]
    for form in forms:
        own = np.flatnonzero(_known(first, form) & ~found.there)
        if not len(own):
            continue
        second, fits = _clock(block.words_at(at[own] + form.clock_at))
        found.unclear[own] = True
        own, second = own[fits], second[fits]
        day, fits = _days(block, at[own], form)
        own = own[fits]
        found.there[own], found.unclear[own] = True, False
        found.ns[own] = day[fits] + second[fits] * _SECOND_NS
        found.end[own] += form.length
        if form is _ISO:
            _read_fractions(block, found, own, padded=padded)
            _read_zones(block, found, own)
        elif form is _LOG4J:
            # With anything after it, it is another timestamp or none.
            after = found.end[own]
            found.unclear[own] = _GOES_ON[block.bytes[after]] | (_zones(block, after)[0] > 0)
    return found


def _known(first: Words, form: _Form) -> Bools:
    there, text = 0, 0
    for at, byte in form.known_by:
        there |= 0xFF << 8 * at
        text |= byte[0] << 8 * at
    return np.asarray(first & np.uint64(there) == np.uint64(text))


def _clock(words: Words) -> tuple[Ints, Bools]:
    """Return the seconds of the day, and which are valid."""
    digits = digits_of(words)
    fits = (words & _COLONS) == (word(_CLOCK) & _COLONS)
    fits &= others_among(digits & ~_COLONS) == 0
    byte = {at: (digits >> np.uint64(8 * at) & np.uint64(0xFF)).view(np.int64) for at in _CLOCK_S}
    fits &= (10 * byte[0] + byte[1] < 24) & (byte[3] < 6) & (byte[6] < 6)
    second = np.zeros(len(words), np.int64)
    for at, takes in _CLOCK_S.items():
        second += byte[at] * takes
    return second, fits


def _days(block: Block, at: Ints, form: _Form) -> tuple[Ints, Bools]:
    """Return when days start, in nanoseconds since 1970, and which days exist."""
    after = form.clock_at + len(_CLOCK)
    keys = [block.words_at(at), block.words_at(at + 8) & mask(form.clock_at - 8)]
    if form.length > after:
        keys.append(block.words_at(at + after) & mask(form.length - after))
    changed = np.arange(len(at)) == 0
    for key in keys:
        changed[1:] |= key[1:] != key[:-1]
    read = []
    for one in at[changed].tolist():
        text = block.bytes[one : one + form.length].tobytes()
        read.append(_day(text[: form.clock_at] + _CLOCK + text[after:]))
    same = np.cumsum(changed) - 1
    return (
        np.array([-1 if ns is None else ns for ns in read], np.int64)[same],
        np.array([ns is not None for ns in read], bool)[same],
    )


@lru_cache(maxsize=1024)
def _day(midnight: bytes) -> int | None:
    timestamp = read_moment(midnight)
    return None if timestamp is None else timestamp.ns


def _read_fractions(block: Block, found: Moments, own: Ints, *, padded: bool) -> None:
    at = found.end[own]
    point = (block.bytes[at] == ord(".")) | (block.bytes[at] == ord(","))
    own, at = own[point], at[point] + 1
    if not len(own):
        return
    value, count = block.numbers(at, _MOST_DIGITS)
    unit = _POWERS[_MOST_DIGITS - count]
    found.ns[own] += value * unit
    found.resolution_ns[own] = unit
    found.end[own] = np.where(count > 0, at + count, at - 1)
    if padded:
        after = block.words[at + count]
        blank = after & np.uint64(0xFF) == ord(" ")
        # A digit, or a blank that digits may follow.
        goes_on = np.isin(after >> np.uint64(8) & np.uint64(0xFF), list(b" 0123456789"))
        found.unclear[own] |= blank & goes_on


def _read_zones(block: Block, found: Moments, own: Ints) -> None:
    length, ahead = _zones(block, found.end[own])
    zoned = length > 0
    own, ahead = own[zoned], ahead[zoned]
    found.end[own] += length[zoned]
    found.zone_known[own] = True
    found.unclear[own] |= np.abs(ahead) >= _DAY_MINUTES
    found.ns[own] -= ahead * (60 * _SECOND_NS)


def _zones(block: Block, at: Ints) -> tuple[Ints, Ints]:
    """Return the lengths of zones, 0 where there is none, and their offsets in minutes."""
    words = block.words[at]
    blank = words & np.uint64(0xFF) == ord(" ")
    words = np.where(blank, words >> np.uint64(8), words)
    sign = words & np.uint64(0xFF)
    digits = digits_of(words >> np.uint64(8))
    colon = digits >> np.uint64(16) & np.uint64(0xFF) == ord(":") ^ ord("0")
    low = np.uint64(0xFFFF)
    digits = (digits & low) | (
        np.where(colon, digits >> np.uint64(8), digits) & (low << np.uint64(16))
    )
    shifted = (sign == ord("+")) | (sign == ord("-"))
    shifted &= others_among(digits) == 0
    length = np.where(shifted, 5 + colon, sign == ord("Z")).astype(np.int64)
    hours_minutes = eight(digits << np.uint64(32))
    ahead = hours_minutes // 100 * 60 + hours_minutes % 100
    ahead = np.where(shifted, np.where(sign == ord("-"), -ahead, ahead), 0)
    return np.where(length > 0, length + blank, 0), ahead


def _read_seconds(block: Block, at: Ints, found: Moments) -> None:
    """Read seconds since 1970; those of nine digits are older than any log."""
    second, count = block.numbers(at, _MOST_SECOND_DIGITS)
    found.unclear |= (count >= _MOST_SECOND_DIGITS - 1) & ~found.there
    own = np.flatnonzero((count == _MOST_SECOND_DIGITS) & ~found.there)
    if not len(own):
        return
    end = at[own] + _MOST_SECOND_DIGITS
    fraction, digits = block.numbers(end + 1, _MOST_FRACTION_DIGITS)
    digits = np.where(block.bytes[end] == ord("."), digits, 0)
    counted = np.minimum(digits, _MOST_DIGITS)
    fraction = np.where(digits > 0, fraction // 10 ** (digits - counted), 0)
    unit = _POWERS[_MOST_DIGITS - counted]
    early = second[own] < LATEST_SECOND
    found.there[own], found.unclear[own] = early, ~early
    found.ns[own] = np.where(early, second[own], 0) * _SECOND_NS + fraction * unit
    found.resolution_ns[own] = unit
    found.zone_known[own] = True
    found.end[own] = end + np.where(digits > 0, digits + 1, 0)

"""Read the timestamps of many lines at once, as ``timestamps`` reads single ones.

Dates repeat from line to line: ``timestamps`` reads each of them once. The rest of a timestamp is
digits. Rare forms are marked as unclear, and the caller reads them one by one.
"""

from __future__ import annotations

import re
import string
from calendar import isleap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from stallscope.arrays.types import Bools, Ints

from .line_blocks import (
    Column,
    LineBlock,
    Words,
    digits_of,
    eight,
    is_blank,
    mask,
    others_among,
    text_starts,
    word,
)
from .timestamps import (
    LATEST_SECOND,
    LEAP_YEAR,
    Timestamp,
    assumed_year,
    read_dated,
    read_moment,
)

_SECOND_NS = 10**9
_CLOCK = b"00:00:00"
_COLONS = word(b"\0\0\xff\0\0\xff")
# The seconds that a digit 1 stands for, by its byte in a clock.
_CLOCK_S = {0: 36_000, 1: 3_600, 3: 600, 4: 60, 6: 10, 7: 1}
# Further digits of a fraction are ignored.
_MOST_DIGITS = 9
_POWERS = 10 ** np.arange(_MOST_DIGITS + 1)
_SECOND_DIGITS, _MOST_FRACTION_DIGITS = 10, 12
_MILLISECOND_DIGITS, _MILLISECOND_NS = 3, 10**6
# The most blanks and brackets before the timestamp at the start of a line.
_MOST_BEFORE = 8
_BEFORE = re.compile(rb"[\s\[]")
# Columns of timestamps: whether a line has one, and the values of a ``Timestamp``.
_TIMESTAMP = ("timed", "ns", "zone_known", "resolution_ns", "year_known")
_NEVER = Timestamp(0, False, 1, True)
_DAY_MINUTES = 1440
_DAY_NS = 86_400 * _SECOND_NS
_GOES_ON = np.isin(np.arange(256), list((string.ascii_letters + string.digits + "_.,").encode()))


def _start_of(year: int, month: int = 1) -> int:
    return int(datetime(year, month, 1, tzinfo=UTC).timestamp()) * _SECOND_NS


class _Form(NamedTuple):
    """A form of timestamps: a date, a clock, and sometimes a fraction or a year after it."""

    #: Bytes among the first eight that identify it.
    known_by: tuple[tuple[int, bytes], ...]
    clock_at: int
    #: Without a fraction and a zone.
    length: int
    has_fraction: bool = False
    has_zone: bool = False
    has_year: bool = True


_ISO = _Form(((4, b"-"), (7, b"-")), 11, 19, has_fraction=True, has_zone=True)
_SLASHES = _ISO._replace(known_by=((4, b"/"), (7, b"/")))
_MONTH_FIRST = _Form(((2, b"/"), (5, b"/")), 11, 19)
_LOG4J = _Form(((2, b"/"), (5, b"/")), 9, 17)
_IN_WORDS = _Form(((3, b" "), (7, b" ")), 11, 24)
_GLOG = _Form(((5, b" "),), 6, 14, has_fraction=True, has_year=False)
_MONTH_DAY = _GLOG._replace(known_by=((2, b"/"), (5, b" ")))
_SYSLOG = _Form(((3, b" "), (6, b" ")), 7, 15, has_fraction=True, has_year=False)
_FORMS = (_ISO, _SLASHES, _MONTH_FIRST, _LOG4J, _IN_WORDS, _GLOG, _MONTH_DAY, _SYSLOG)
# Glog's levels, the end of its date with a year, and where a bar follows Kubeflow's levels.
_DIGITS = np.isin(np.arange(256), list(string.digits.encode()))
_LEVELS = np.isin(np.arange(256), list(b"IWEFCVD"))
_GLOG_YEAR_END, _BARS = 9, range(4, 9)
# More years than any log has.
_MOST_YEARS = 50
_HALF_A_YEAR_NS = 183 * _DAY_NS
_MARCH_NS = _start_of(LEAP_YEAR, 3)


@dataclass
class Moments:
    """The timestamps at several places."""

    #: Where the timestamp ends, if there is one.
    end: Ints
    exists: Bools
    #: Whether the text has to be read by ``timestamps``.
    unclear: Bools
    #: As in a ``Timestamp``.
    ns: Ints
    zone_known: Bools
    resolution_ns: Ints
    year_known: Bools


def moments(block: LineBlock, at: Ints) -> Moments:
    """Read the timestamps at these places, as ``MOMENT`` finds and ``read_moment`` reads them."""
    at = at + (block.bytes[at] == ord("["))
    timestamps = _read(block, at)
    _read_seconds(block, at, timestamps)
    timestamps.end += block.bytes[timestamps.end] == ord("]")
    return timestamps


def line_starts(block: LineBlock, at: Ints, end: Ints) -> Moments:
    """Read the timestamps at the starts of lines, as ``read_dated`` reads them.

    Args:
        at: where texts that may contain a timestamp start.
        end: where they end.
    """
    at = at.copy()
    for _ in range(_MOST_BEFORE):
        byte = block.bytes[at]
        more = is_blank(byte) | (byte == ord("["))
        if not more.any():
            break
        at += more
    timestamps = _read(block, at, padded=True)
    _read_seconds_before(block, at, end, timestamps)
    # Rare forms: glog's with a year, and those after a level and a bar.
    rare = _LEVELS[block.bytes[at]] & (block.bytes[at + _GLOG_YEAR_END] == ord(" "))
    for place in _BARS:
        rare |= block.bytes[at + place] == ord("|")
    timestamps.unclear |= rare & ~timestamps.exists
    return timestamps


def in_assumed_years(ns: Ints, now_ns: int) -> Ints:
    """Move timestamps without a year to the years that are assumed.

    The last one is in the latest year in which it is not in the future. A new year begins where
    timestamps go back by more than half a year.

    Args:
        ns: timestamps in ``LEAP_YEAR``, in the order of their lines.
        now_ns: as ``latest_ns`` returns it.
    """
    years = _years_begun(ns)
    last = years.max(initial=0)
    latest = Timestamp(int(ns[years == last].max(initial=0)), False)
    leap = years[(ns >= _MARCH_NS - _DAY_NS) & (ns < _MARCH_NS)]
    first = assumed_year(latest, now_ns) - int(last)
    # Every 29 February has to be in a leap year.
    first -= next((back for back in range(8) if all(map(isleap, leap[:1] + first - back))), 0)
    starts = np.array([_start_of(first + year) for year in range(int(last) + 1)])
    short = np.array([not isleap(first + year) for year in range(int(last) + 1)])
    moved = ns - _start_of(LEAP_YEAR) + starts[years]
    return np.asarray(moved - np.where(short[years] & (ns >= _MARCH_NS), _DAY_NS, 0))


def _years_begun(ns: Ints) -> Ints:
    """Return for each timestamp how many years have begun since the first one."""
    change = np.diff(ns, prepend=ns[:1])
    # Ranks' lines may be out of order: a year that has begun may also end.
    walked = np.cumsum((change < -_HALF_A_YEAR_NS).astype(int) - (change > _HALF_A_YEAR_NS))
    years = walked - np.minimum(np.minimum.accumulate(walked), 0)
    return np.asarray(years if years.max(initial=0) <= _MOST_YEARS else np.zeros_like(years))


def _read(block: LineBlock, at: Ints, *, padded: bool = False) -> Moments:
    """Read timestamps with a date.

    Args:
        padded: whether ISO timestamps may have blanks among the digits of their fractions.
    """
    count = len(at)
    timestamps = Moments(
        end=at.copy(),
        exists=np.zeros(count, bool),
        unclear=np.zeros(count, bool),
        ns=np.zeros(count, np.int64),
        zone_known=np.zeros(count, bool),
        resolution_ns=np.full(count, _SECOND_NS),
        year_known=np.ones(count, bool),
    )
    first = block.words[at]
    for form in _FORMS:
        rows = np.flatnonzero(_known(first, form) & ~timestamps.exists)
        if not len(rows):
            continue
        second, fits = _clock(block.words_at(at[rows] + form.clock_at))
        rows, second = rows[fits], second[fits]
        day, fits = _days(block, at[rows], form)
        rows = rows[fits]
        timestamps.exists[rows] = True
        timestamps.ns[rows] = day[fits] + second[fits] * _SECOND_NS
        timestamps.end[rows] += form.length
        timestamps.year_known[rows] = form.has_year
        if form.has_fraction:
            _read_fractions(block, timestamps, rows, padded=padded and form.has_zone)
        if form.has_zone:
            _read_zones(block, timestamps, rows)
        if form is _LOG4J:
            # If anything follows, it is another timestamp, or none.
            after = timestamps.end[rows]
            timestamps.unclear[rows] = _GOES_ON[block.bytes[after]] | (_zones(block, after)[0] > 0)
    return timestamps


def _known(first: Words, form: _Form) -> Bools:
    bits, text = 0, 0
    for at, byte in form.known_by:
        bits |= 0xFF << 8 * at
        text |= byte[0] << 8 * at
    return np.asarray(first & np.uint64(bits) == np.uint64(text))


def _clock(words: Words) -> tuple[Ints, Bools]:
    """Return the seconds of the day, and whether they are valid."""
    digits = digits_of(words)
    fits = (words & _COLONS) == (word(_CLOCK) & _COLONS)
    fits &= others_among(digits & ~_COLONS) == 0
    byte = {at: (digits >> np.uint64(8 * at) & np.uint64(0xFF)).view(np.int64) for at in _CLOCK_S}
    fits &= (10 * byte[0] + byte[1] < 24) & (byte[3] < 6) & (byte[6] < 6)
    second = np.zeros(len(words), np.int64)
    for at, takes in _CLOCK_S.items():
        second += byte[at] * takes
    return second, fits


def _days(block: LineBlock, at: Ints, form: _Form) -> tuple[Ints, Bools]:
    """Return the starts of days, in nanoseconds since 1970, and whether the days exist."""
    after = form.clock_at + len(_CLOCK)
    keys = [block.words_at(at) & mask(min(form.clock_at, 8))]
    if form.clock_at > 8:
        keys.append(block.words_at(at + 8) & mask(form.clock_at - 8))
    if form.length > after:
        keys.append(block.words_at(at + after) & mask(form.length - after))
    changed = np.arange(len(at)) == 0
    for key in keys:
        changed[1:] |= key[1:] != key[:-1]
    read = []
    for start in at[changed].tolist():
        text = block.bytes[start : start + form.length].tobytes()
        read.append(_day(text[: form.clock_at] + _CLOCK + text[after:]))
    same = np.cumsum(changed) - 1
    return (
        np.array([-1 if ns is None else ns for ns in read], np.int64)[same],
        np.array([ns is not None for ns in read], bool)[same],
    )


@lru_cache(maxsize=1024)
def _day(midnight: bytes) -> int | None:
    # Text before the timestamp would belong to another form.
    timestamp = None if _BEFORE.match(midnight) else read_moment(midnight)
    return None if timestamp is None else timestamp.ns


def _read_fractions(block: LineBlock, timestamps: Moments, rows: Ints, *, padded: bool) -> None:
    at = timestamps.end[rows]
    point = (block.bytes[at] == ord(".")) | (block.bytes[at] == ord(","))
    rows, at = rows[point], at[point] + 1
    if not len(rows):
        return
    value, count = block.numbers(at, _MOST_DIGITS)
    unit = _POWERS[_MOST_DIGITS - count]
    timestamps.ns[rows] += value * unit
    timestamps.resolution_ns[rows] = unit
    timestamps.end[rows] = np.where(count > 0, at + count, at - 1)
    if padded:
        after = block.words[at + count]
        blank = after & np.uint64(0xFF) == ord(" ")
        # A digit, or a blank that digits may follow.
        goes_on = np.isin(after >> np.uint64(8) & np.uint64(0xFF), list(b" 0123456789"))
        timestamps.unclear[rows] |= blank & goes_on


def _read_zones(block: LineBlock, timestamps: Moments, rows: Ints) -> None:
    length, ahead = _zones(block, timestamps.end[rows])
    zoned = length > 0
    rows, ahead = rows[zoned], ahead[zoned]
    timestamps.end[rows] += length[zoned]
    timestamps.zone_known[rows] = True
    timestamps.unclear[rows] |= np.abs(ahead) >= _DAY_MINUTES
    timestamps.ns[rows] -= ahead * (60 * _SECOND_NS)


def _zones(block: LineBlock, at: Ints) -> tuple[Ints, Ints]:
    """Return the lengths of zones, 0 if there is none, and their offsets in minutes."""
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


def _read_seconds(block: LineBlock, at: Ints, timestamps: Moments) -> None:
    """Read seconds or milliseconds since 1970; seconds of nine digits are older than any log."""
    second, count = block.numbers(at, _SECOND_DIGITS)
    timestamps.unclear |= (count >= _SECOND_DIGITS - 1) & ~timestamps.exists
    rows = np.flatnonzero((count == _SECOND_DIGITS) & ~timestamps.exists)
    if not len(rows):
        return
    end = at[rows] + _SECOND_DIGITS
    thousandth, more = block.numbers(end, _MILLISECOND_DIGITS + 1)
    in_ms = more == _MILLISECOND_DIGITS
    fraction_ns, unit, length = _fractions_of_seconds(block, end)
    early = second[rows] < LATEST_SECOND
    timestamps.exists[rows], timestamps.unclear[rows] = early, ~early
    timestamps.ns[rows] = np.where(early, second[rows], 0) * _SECOND_NS
    timestamps.ns[rows] += np.where(in_ms, thousandth * _MILLISECOND_NS, fraction_ns)
    timestamps.resolution_ns[rows] = np.where(in_ms, _MILLISECOND_NS, unit)
    timestamps.zone_known[rows] = True
    timestamps.end[rows] = end + np.where(in_ms, _MILLISECOND_DIGITS, length)


def _read_seconds_before(block: LineBlock, at: Ints, end: Ints, timestamps: Moments) -> None:
    """Read seconds since 1970 before lines: numbers of steps do not have so many digits."""
    first, last = block.bytes[at], block.bytes[at + _SECOND_DIGITS - 1]
    rows = np.flatnonzero(((first == ord("1")) | (first == ord("2"))) & _DIGITS[last])
    if not len(rows):
        return
    second, count = block.numbers(at[rows], _SECOND_DIGITS)
    fraction_ns, unit, length = _fractions_of_seconds(block, at[rows] + _SECOND_DIGITS)
    stop = at[rows] + _SECOND_DIGITS + length
    after = block.bytes[stop]
    fits = (count == _SECOND_DIGITS) & (stop < end[rows])
    fits &= is_blank(after) | (after == ord("\n")) | (after == ord("]"))
    rows = rows[fits]
    timestamps.exists[rows] = True
    timestamps.ns[rows] = second[fits] * _SECOND_NS + fraction_ns[fits]
    timestamps.resolution_ns[rows] = unit[fits]
    timestamps.zone_known[rows] = True
    timestamps.end[rows] = stop[fits]


def _fractions_of_seconds(block: LineBlock, at: Ints) -> tuple[Ints, Ints, Ints]:
    """Read the fractions of seconds, if there are any.

    Returns:
        the fractions and the units of their last digits in nanoseconds, and the lengths of the texts.
    """
    fraction, digits = block.numbers(at + 1, _MOST_FRACTION_DIGITS)
    digits = np.where(block.bytes[at] == ord("."), digits, 0)
    counted = np.minimum(digits, _MOST_DIGITS)
    unit = _POWERS[_MOST_DIGITS - counted]
    fraction = np.where(digits > 0, fraction // 10 ** (digits - counted), 0)
    return fraction * unit, unit, np.where(digits > 0, digits + 1, 0)


# -- columns of timestamps -------------------------------------------------------------------------


def moments_of(pieces: Sequence[bytes]) -> dict[str, Column]:
    """Read texts that are timestamps, as ``read_moment`` does."""
    ends = np.cumsum([len(piece) + 1 for piece in pieces], dtype=np.int64)
    start = np.append(0, ends[:-1])[: len(ends)]
    timestamps = moments(LineBlock(b"\n".join(pieces)), start)
    # A text of a rare form has the form of a timestamp.
    timestamps.unclear |= ~timestamps.exists
    return _columns(timestamps, lambda at: read_moment(pieces[at]))


def dated_columns(block: LineBlock, start: Ints, end: Ints, most: int) -> dict[str, Column]:
    """Read the timestamps at the starts of texts, as ``read_dated`` does.

    Args:
        block: the block of the texts.
        start: where they start.
        end: where they end.
        most: the most bytes of each that are read.
    """
    start = text_starts(block, start)
    end = np.minimum(np.maximum(end, start), start + most)
    return _columns(
        line_starts(block, start, end),
        lambda at: read_dated(block.bytes[start[at] : end[at]].tobytes()),
    )


def timestamp_at(columns: Mapping[str, Column], at: int) -> Timestamp:
    """Return the timestamp of a timed line."""
    known = (columns[name][at].item() for name in _TIMESTAMP[1:])
    return Timestamp(*known)


def _columns(
    timestamps: Moments, read_one_by_one: Callable[[int], Timestamp | None]
) -> dict[str, Column]:
    known = (
        timestamps.exists,
        timestamps.ns,
        timestamps.zone_known,
        timestamps.resolution_ns,
        timestamps.year_known,
    )
    for at in np.flatnonzero(timestamps.unclear).tolist():
        timestamp = read_one_by_one(at)
        values = astuple(timestamp or _NEVER)
        for column, value in zip(known, (timestamp is not None, *values), strict=True):
            column[at] = value
    return dict(zip(_TIMESTAMP, known, strict=True))

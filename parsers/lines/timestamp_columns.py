"""Read the timestamps of many lines at once, as ``timestamps`` reads single ones.

Texts with digits at the same places are of one form: ``timestamps`` finds the parts of one of them, and
the numbers of all are read together. Times that do not exist are left to ``timestamps``.
"""

from __future__ import annotations

import re
from calendar import isleap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stallscope.arrays import arrow
from stallscope.arrays.types import Bools, Ints

from .line_blocks import Column, LineBlock, lengths_of, texts_of
from .timestamps import (
    LATEST_SECOND,
    LEAP_YEAR,
    MONTHS,
    YEARS,
    Timestamp,
    assumed_year,
    dated_match,
    latest_ns,
    moment_match,
    timestamp_of,
)

_SECOND_NS = 10**9
_DAY_NS = 86_400 * _SECOND_NS
# Further digits of a fraction are ignored.
_MOST_DIGITS = 9
_POWERS = 10 ** np.arange(_MOST_DIGITS + 1)
# Those of seconds since 1970.
_FIRST_DIGITS = np.frombuffer(b"12", np.uint8)
# Timestamps are shorter, unless much stands before them.
_LONGEST = 48
# Blanks and colours before a text, and the most bytes of them.
_BLANKS = re.compile(rb"(?:\s|\x1b\[[\d;]{0,12}m){0,64}")
_ARE_BLANKS = np.isin(np.arange(256), list(b" \t\v\f\r\x1b"))
_MOST_BLANKS = 80
#: Columns of timestamps: whether a line has one, and the values of a ``Timestamp``.
OF_TIMESTAMPS = ("timed", "ns", "zone_known", "resolution_ns", "year_known")
_IS_DATE = r"^\s*(?:\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d|[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d )"
_NEVER = Timestamp(0, False, 1, True)
# More years than any log has.
_MOST_YEARS = 50
_HALF_A_YEAR_NS = 183 * _DAY_NS


def _start_of(year: int, month: int = 1) -> int:
    return int(datetime(year, month, 1, tzinfo=UTC).timestamp()) * _SECOND_NS


_MARCH_NS = _start_of(LEAP_YEAR, 3)


def moments_of(texts: pa.Array) -> dict[str, Column]:
    """Read texts that are timestamps, as ``read_moment`` does."""
    length = lengths_of(texts)
    block, end = LineBlock(arrow.lines_of(texts)), np.cumsum(length + 1) - 1
    return _columns(block, end - length, end, moment_match)


def moments_in(column: pa.Array) -> dict[str, Column] | None:
    """Return the timestamps of a column of dates; None for other columns."""
    if pa.types.is_timestamp(column.type):
        zone_known = column.type.tz is not None
        column = pc.strftime(column, format="%Y-%m-%d %H:%M:%S" + ("Z" if zone_known else ""))
    if not pa.types.is_string(column.type):
        return None
    texts = arrow.without_nulls(column)
    are_dates = arrow.numbers(pc.match_substring_regex(texts, _IS_DATE)) == 1
    if np.mean(are_dates) <= 0.5:
        return None
    return moments_of(pc.utf8_trim_whitespace(texts))


def dated_columns(block: LineBlock, start: Ints, end: Ints, most: int) -> dict[str, Column]:
    """Read the timestamps at the starts of texts, as ``read_dated`` does.

    Args:
        block: the block of the texts.
        start: where they start.
        end: where they end.
        most: the most bytes of each that are read.
    """
    start = _text_starts(block, start, end)
    end = np.minimum(end, start + most)
    return _columns(block, start, end, dated_match)


def dates_in(
    block: LineBlock, start: Ints, end: Ints, form: re.Pattern[bytes]
) -> dict[str, Column]:
    """Read the first timestamp of a form in each text."""
    return _columns(block, start, end, form.search, int((end - start).max(initial=0)))


def without_timestamps(count: int) -> dict[str, Column]:
    """Return the columns of lines that have no timestamp."""
    known = (False, *astuple(_NEVER))
    return {name: np.full(count, value) for name, value in zip(OF_TIMESTAMPS, known, strict=True)}


def stamps_by(ns: Ints, unit_ns: int) -> dict[str, Column]:
    """Return moments since 1970 as the timestamps of lines."""
    known = np.ones(len(ns), bool)
    return {
        "timed": known,
        "ns": ns,
        "zone_known": known,
        "resolution_ns": np.full(len(ns), unit_ns),
        "year_known": known,
    }


def timestamp_at(columns: Mapping[str, Column], at: int) -> Timestamp:
    """Return the timestamp of a timed line."""
    known = (columns[name][at].item() for name in OF_TIMESTAMPS[1:])
    return Timestamp(*known)


def joined_columns(parts: Sequence[Mapping[str, Column]]) -> dict[str, Column] | None:
    """Join the columns of blocks; None without any.

    Timestamps without a year are moved to the latest years in which they are not in the future.
    """
    if not parts:
        return None
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    without = columns["timed"] & ~columns["year_known"]
    if without.any():
        columns["ns"][without] = in_assumed_years(columns["ns"][without], latest_ns())
    return columns


def year_note(columns: Mapping[str, Column]) -> str | None:
    """Return a note on the year that is assumed for timestamps without one; None if all have one."""
    without = np.flatnonzero(columns["timed"] & ~columns["year_known"])
    if not len(without):
        return None
    first = timestamp_at(columns, int(without[0]))
    return f"the timestamps have no year: the first is assumed to be of {first.text[:4]}"


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


def _text_starts(block: LineBlock, start: Ints, end: Ints) -> Ints:
    """Return where the texts of lines start, after blanks and colours."""
    rows = np.flatnonzero(_ARE_BLANKS[block.bytes[start]] & (start < end))
    if not len(rows):
        return start
    begin = start[rows]
    until = np.minimum(end[rows], begin + _MOST_BLANKS)
    coded = texts_of(block.digits_alike, begin, until).dictionary_encode()
    lengths = [len(_BLANKS.sub(b"", text, 1)) for text in coded.dictionary.to_pylist()]
    starts = start.copy()
    starts[rows] = until - np.array(lengths, np.int64)[arrow.numbers(coded.indices)]
    return starts


# -- the parts of timestamps -----------------------------------------------------------------------

_Match = re.Match[bytes]
# The names of all but the fraction; names of months are those of forms.
_PARTS_OF_SECONDS = ("year", "month", "day", "time", "zone", "seconds")


@dataclass(frozen=True)
class _Parts:
    """The parts of timestamps, by the names of their groups in ``timestamps``."""

    block: LineBlock
    #: Where each text starts, and the parts of one text of its form, by their number.
    start: Ints
    form: Ints
    matches: Sequence[_Match | None]

    def texts(self, name: str) -> list[bytes]:
        """Return the text of a part in each form, with other digits; empty without it."""
        return [
            (match[name] or b"") if match is not None and name in match.re.groupindex else b""
            for match in self.matches
        ]

    def span(self, name: str) -> tuple[Ints, Ints]:
        """Return where a part starts, and its length; 0 without it."""
        spans = [
            match.span(name) if match is not None and name in match.re.groupindex else (0, 0)
            for match in self.matches
        ]
        first, last = np.array(spans, np.int64).T
        return self.start + first[self.form], (last - first)[self.form]

    def number(self, name: str) -> Ints:
        """Return the number that is a part; 0 without it."""
        if not any(self.texts(name)):
            return np.zeros(len(self.start), np.int64)
        return self.block.fixed_numbers(*self.span(name))

    @property
    def begins_second(self) -> Bools:
        """Mark the texts that differ from the one before by more than a fraction of a second."""
        begins = np.append(True, self.form[1:] != self.form[:-1])[: len(self.form)]
        for name in _PARTS_OF_SECONDS:
            if any(self.texts(name)):
                for words in self.block.words_of(*self.span(name)):
                    begins[1:] |= words[1:] != words[:-1]
        return begins

    @property
    def dates(self) -> tuple[Ints, Bools, Bools]:
        """Return the starts of days in nanoseconds, whether these exist, and have a year."""
        _, digits = self.span("year")
        year = np.where(digits == 2, 2000, 0) + self.number("year")
        year = np.where(digits > 0, year, LEAP_YEAR)
        names = [MONTHS.index(name) + 1 if name else 0 for name in self.texts("name")]
        month = self.number("month") + np.array(names, np.int64)[self.form]
        months = (12 * (year - LEAP_YEAR) + month - 1).astype("timedelta64[M]")
        months = np.datetime64(f"{LEAP_YEAR}-01") + months
        days = months.astype("datetime64[D]") + (self.number("day") - 1)
        exists = (days.astype("datetime64[M]") == months) & (month > 0) & (month <= len(MONTHS))
        exists &= (year >= YEARS.start) & (year < YEARS.stop)
        return days.astype(np.int64) * _DAY_NS, exists, digits > 0

    @property
    def clocks(self) -> tuple[Ints, Bools]:
        """Return the nanoseconds of the day, and whether these exist."""
        at, length = self.span("time")
        hour, minute, second = (
            self.block.fixed_numbers(at + place, np.minimum(length, 2)) for place in (0, 3, 6)
        )
        exists = (hour < 24) & (minute < 60) & (second < 60)
        return (3600 * hour + 60 * minute + second) * _SECOND_NS, exists

    @property
    def fractions(self) -> tuple[Ints, Ints]:
        """Return the nanoseconds of fractions, and the unit of their last digit."""
        at, length = self.span("fraction")
        digits = np.minimum(length, _MOST_DIGITS)
        unit = _POWERS[_MOST_DIGITS - digits]
        return self.block.fixed_numbers(at, digits) * unit, unit

    @property
    def zones(self) -> tuple[Ints, Bools]:
        """Return the nanoseconds by which zones are ahead, and whether they are known."""
        at, length = self.span("zone")
        digits = np.where(length > 1, 2, 0)
        minutes = 60 * self.block.fixed_numbers(at + 1, digits)
        minutes += self.block.fixed_numbers(at + length - 2, digits)
        signs = [-1 if zone.startswith(b"-") else 1 for zone in self.texts("zone")]
        return minutes * np.array(signs, np.int64)[self.form] * (60 * _SECOND_NS), length > 0


def _columns(
    block: LineBlock,
    start: Ints,
    end: Ints,
    match_in: Callable[[bytes], _Match | None],
    most: int = _LONGEST,
) -> dict[str, Column]:
    """Read timestamps.

    Args:
        block: the block of the texts.
        start: where they start.
        end: where they end.
        match_in: finds the parts of the timestamp of a text.
        most: the most bytes of a text in which it ends.
    """
    cut = np.minimum(end, start + most)
    coded = texts_of(block.digits_alike, start, cut).dictionary_encode()
    matches = [match_in(text) for text in coded.dictionary.to_pylist()]
    parts = _Parts(block, start, arrow.numbers(coded.indices), matches)
    if not any(matches):
        return without_timestamps(len(start))
    # Lines of one second often follow each other: it is read once.
    begins = parts.begins_second
    second = _seconds_of(replace(parts, start=start[begins], form=parts.form[begins]))
    if len(second[0]) < len(start):
        of_each = np.cumsum(begins) - 1
        second = tuple(column[of_each] for column in second)
    seconds_ns, exists, zone_known, year_known = second
    timed = np.array([match is not None for match in matches], bool)[parts.form]
    fractions, unit = parts.fractions
    ns = seconds_ns + fractions
    ends = np.array([0 if match is None else match.end() for match in matches], np.int64)
    # A part may go on.
    unclear = (timed & ~exists) | ((cut < end) & (ends[parts.form] + _MOST_DIGITS > most))
    ns[~timed] = 0
    columns = (timed, ns, zone_known, unit, year_known | ~timed)
    for row in np.flatnonzero(unclear).tolist():
        timestamp = timestamp_of(match_in(block.text[start[row] : end[row]]))
        values = astuple(timestamp or _NEVER)
        for column, value in zip(columns, (timestamp is not None, *values), strict=True):
            column[row] = value
    return dict(zip(OF_TIMESTAMPS, columns, strict=True))


def _seconds_of(parts: _Parts) -> tuple[Ints, Bools, Bools, Bools]:
    """Return timestamps without their fractions, and whether they exist, have a zone, and a year."""
    since_1970, (at, length) = parts.number("seconds"), parts.span("seconds")
    (days, has_day, has_year), (clocks, has_clock) = parts.dates, parts.clocks
    ahead, has_zone = parts.zones
    is_since = length > 0
    exists = np.where(
        is_since,
        np.isin(parts.block.bytes[at], _FIRST_DIGITS) & (since_1970 < LATEST_SECOND),
        has_day & has_clock & (np.abs(ahead) < _DAY_NS),
    )
    ns = np.where(is_since, since_1970 * _SECOND_NS, days + clocks - ahead)
    return ns, exists, is_since | has_zone, is_since | has_year

"""Read the timestamps that launchers, loggers and log services put before lines."""

from __future__ import annotations

import re
import time
from calendar import isleap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from itertools import groupby

#: Other years are damage.
YEARS = range(1970, 2200)
#: The number of seconds since 1970 from which times are damage, too.
LATEST_SECOND = 7_258_118_400
MONTHS = b"Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split()
#: A time in words, as launchers write it.
CTIME = (
    rb"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) (?P<name>Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) "
    rb"(?P<day>[ \d]\d) (?P<time>\d\d:\d\d:\d\d) (?P<year>\d{4})"
)
# What may stand before a line's timestamp: brackets, or a level as Kubeflow's launcher writes it.
_BEFORE = rb"(?:[A-Z]{4,8}\|)?[\s\[]{0,8}"
_STAMPS = (
    re.compile(_BEFORE + CTIME),
    re.compile(
        _BEFORE + rb"(?P<year>\d{4})(?P<dash>[-/])(?P<month>\d\d)(?P=dash)(?P<day>\d\d)"
        rb"[T ](?P<time>\d\d:\d\d:\d\d)(?:[.,](?P<fraction>[ \d]{0,8}\d))?"
        rb"(?: ?(?P<zone>Z|[+-]\d\d:?\d\d))?"
    ),
    # Spark's log4j; with dashes and milliseconds BasicSR and its like.
    re.compile(
        _BEFORE + rb"(?P<year>\d\d)(?P<dash>[-/])(?P<month>\d\d)(?P=dash)(?P<day>\d\d) "
        rb"(?P<time>\d\d:\d\d:\d\d)(?:[.,](?P<fraction>\d{1,9}))?\b"
    ),
)

_DATED = (
    r"[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}"
    r"|(?:[A-Z](?:\d{4})?\d{4}|[A-Z][a-z]{2} [ \d]\d|\d\d/\d\d) \d\d:\d\d:\d\d(?:[.,]\d{1,9})?"
    r"|\d\d/\d\d/\d{4} \d\d:\d\d:\d\d|\d\d\.\d\d\.\d\d\|\d\d:\d\d:\d\d"
    r"|(?:\d\d)?\d\d[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?: ?(?:Z|[+-]\d\d:?\d\d))?"
)
#: Seconds or milliseconds since 1970.
SINCE_1970 = r"\d{13}(?!\d)|\d{9,10}(?:\.\d{1,12})?"
#: A timestamp with a date, of any of these forms or those below, in the middle of a line.
DATED_MOMENT = rf"\[?(?:{_DATED})\]?"
#: The same, or seconds or milliseconds since 1970.
MOMENT = rf"\[?(?:{_DATED}|{SINCE_1970})\]?"
# As Hugging Face's examples log, and as ST-GCN and its like.
_MONTH_FIRST = (
    re.compile(
        _BEFORE + rb"(?P<month>\d\d)/(?P<day>\d\d)/(?P<year>\d{4}) (?P<time>\d\d:\d\d:\d\d)"
    ),
    re.compile(
        _BEFORE + rb"(?P<month>\d\d)\.(?P<day>\d\d)\.(?P<year>\d\d)\|(?P<time>\d\d:\d\d:\d\d)"
    ),
)
# As glog and absl log, the year from glog 0.5 on.
_GLOG = re.compile(
    _BEFORE + rb"[IWEFCVD](?P<year>\d{4})?(?P<month>\d\d)(?P<day>\d\d) (?P<time>\d\d:\d\d:\d\d)"
    rb"(?:[.,](?P<fraction>\d{1,9}))?"
)
_SYSLOG = re.compile(
    _BEFORE + rb"(?P<name>Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) (?P<day>[ \d]\d) "
    rb"(?P<time>\d\d:\d\d:\d\d)(?:[.,](?P<fraction>\d{1,9}))?"
)
# As detectron2 logs.
_MONTH_DAY = re.compile(
    _BEFORE + rb"(?P<month>\d\d)/(?P<day>\d\d) (?P<time>\d\d:\d\d:\d\d)"
    rb"(?:[.,](?P<fraction>\d{1,9}))?"
)
_WITHOUT_YEAR = (_GLOG, _SYSLOG, _MONTH_DAY)
# As ``ts %s`` and ``ts %.s`` write; numbers of steps have fewer digits.
_SECONDS_BEFORE = re.compile(
    _BEFORE + rb"(?P<seconds>[12]\d{9})(?:\.(?P<fraction>\d{1,12}))?(?=[\s\]])"
)
_DATED_FORMS = (*_MONTH_FIRST, _SECONDS_BEFORE, *_WITHOUT_YEAR, *_STAMPS)
# Seconds or milliseconds alone.
_MOMENT_FORMS = tuple(
    re.compile(rb"[ \[\]]*(?P<seconds>\d%b[ \[\]]*\Z" % rest)
    for rest in (rb"{9,10})(?:\.(?P<fraction>\d{1,12}))?", rb"{10})(?P<fraction>\d{3})")
)
#: A time of day.
TIME = r"(?P<time>\d\d:\d\d:\d\d)(?:[.,](?P<fraction>\d{1,9}))?"
#: Dates whose order only the dates of a log tell: ``09/02/20`` may be of three days.
_PART = {"year": r"(?:[12]\d)?\d\d", "month": r"\d\d", "day": r"\d\d"}
DATES_BY_ORDER = {
    order: r"[-/.]".join(f"(?P<{part}>{_PART[part]})" for part in order) + rf"[-T,_: ]{{1,2}}{TIME}"
    for order in (("month", "day", "year"), ("day", "month", "year"), ("year", "month", "day"))
}
_ORDERED = re.compile(
    r"(?<![\d/.-])(\d\d)([-/.])(\d\d)[-/.]((?:[12]\d)?\d\d)[-T,_: ]{1,2}\d\d:\d\d:\d\d"
)
# Dates with dots begin with the day, and those with dashes and short years as ISO 8601's do.
_USUAL = {".": "day", "-": "year"}
# Short years before this one are days.
_FIRST_SHORT_YEAR = 2015
#: The year of timestamps without one until one is assumed; it has a 29 February.
LEAP_YEAR = 1972
_DAY_NS = 86_400 * 10**9
# Zones are a quarter of an hour apart, from UTC-12 to UTC+14.
_QUARTER_NS = 900 * 10**9
_ZONES = range(-48, 57)
_WRITTEN_NS: ContextVar[int | None] = ContextVar("written_ns", default=None)


@dataclass(frozen=True)
class Timestamp:
    """When a line was printed: nanoseconds since 1970, in local time if the zone is unknown."""

    ns: int
    zone_known: bool
    #: The unit that it is rounded down to: a second, or that of its last digit.
    resolution_ns: int = 10**9
    #: False if the text has no year.
    year_known: bool = True

    @property
    def text(self) -> str:
        """Format the time: ``2026-11-21 02:28:01``."""
        return f"{datetime.fromtimestamp(self.ns // 10**9, UTC):%Y-%m-%d %H:%M:%S}"


def dated_match(text: bytes) -> re.Match[bytes] | None:
    """Find the parts of the timestamp at the start of a line."""
    return _first_match(_DATED_FORMS, text)


def moment_match(text: bytes) -> re.Match[bytes] | None:
    """Find the parts of a text that is a timestamp."""
    return _first_match(_MOMENT_FORMS, text) or dated_match(text)


def _first_match(forms: Sequence[re.Pattern[bytes]], text: bytes) -> re.Match[bytes] | None:
    return next((match for form in forms if (match := form.match(text)) is not None), None)


def read_timestamp(text: bytes) -> Timestamp | None:
    """Read the timestamp with a year that a launcher or a logger puts at the start of a line.

    Returns:
        None if there is none.
    """
    return timestamp_of(_first_match(_STAMPS, text))


def read_dated(text: bytes) -> Timestamp | None:
    """Read the timestamp at the start of a line, also one with the month first, without a year, or in
    seconds since 1970.
    """
    return timestamp_of(dated_match(text))


def read_moment(text: bytes) -> Timestamp | None:
    """Read a text that is a timestamp: as ``read_dated``, or seconds or milliseconds since 1970."""
    return timestamp_of(moment_match(text))


def read_without_year(text: bytes, year: int = LEAP_YEAR) -> Timestamp | None:
    """Read the timestamp of glog, absl or syslog, or one like them, at the start of a text.

    Args:
        text: ``I0906 02:52:05.102637 4758 main.cc:93]``, ``Nov 21 02:28:01``, ``11/21 02:28:01``.
        year: the year if it has none.

    Returns:
        None if there is no timestamp, or the year does not have its day.
    """
    return timestamp_of(_first_match(_WITHOUT_YEAR, text), year)


@contextmanager
def written_at(ns: int | None) -> Iterator[None]:
    """Set when the file that is being read was last changed: its timestamps are not later.

    Args:
        ns: nanoseconds since 1970; None if unknown.
    """
    token = _WRITTEN_NS.set(ns)
    try:
        yield
    finally:
        _WRITTEN_NS.reset(token)


def latest_ns() -> int:
    """Return when the file that is being read was last changed, or else now; nanoseconds since 1970."""
    written = _WRITTEN_NS.get()
    return time.time_ns() if written is None else written


def assumed_year(last: Timestamp, now_ns: int) -> int:
    """Return the latest year in which a timestamp without a year is not in the future.

    Args:
        last: the last timestamp of a file, as ``read_without_year`` reads it.
        now_ns: as ``latest_ns`` returns it.
    """
    # Local times are up to 14 hours ahead.
    latest = datetime.fromtimestamp((now_ns + _DAY_NS) // 10**9, UTC)
    moment = datetime.fromtimestamp(last.ns // 10**9, UTC)
    year = latest.year
    while not _has_day(year, moment) or moment.replace(year=year) > latest:
        year -= 1
    return year


def _has_day(year: int, moment: datetime) -> bool:
    return isleap(year) or (moment.month, moment.day) != (2, 29)


def date_order(text: str) -> tuple[tuple[str, str, str], bool] | None:
    """Return the order of the numbers in dates such as ``09/02/20``, and whether it is certain.

    Of orders in which dates never go back and are not in the future, that counts in which the days are
    closest to each other.

    Args:
        text: a log, or a sample of it.

    Returns:
        None if there are no such dates, or no order fits.
    """
    dates = [date for date, _ in groupby(_ORDERED.findall(text))]
    latest = datetime.fromtimestamp((latest_ns() + _DAY_NS) // 10**9, UTC).toordinal()
    spans = {}
    for order in DATES_BY_ORDER:
        days = [_day_of(dict(zip(order, (first, *rest), strict=True))) for first, _, *rest in dates]
        if days and days[0] > 0 and days == sorted(days) and days[-1] <= latest:
            spans[order] = days[-1] - days[0]
    fits = [order for order, span in spans.items() if span == min(spans.values())]
    usual = [order for order in fits if order[0] == _USUAL.get(dates[0][1])]
    return ((usual or fits)[0], len(usual or fits) == 1) if fits else None


def _day_of(parts: dict[str, str]) -> int:
    """Return the number of a day; -1 if there is none."""
    year = int(parts["year"])
    try:
        day = datetime(year + (0 if year > 99 else 2000), int(parts["month"]), int(parts["day"]))
    except ValueError:
        return -1
    return day.toordinal() if year > 99 or day.year >= _FIRST_SHORT_YEAR else -1


def zones_between(first: int, last: int, start: int, stop: int) -> list[int]:
    """Return the zones in which local times lie between two moments in UTC, as offsets in nanoseconds.

    Args:
        first: the first local time, nanoseconds.
        last: the last one.
        start: the first moment in UTC.
        stop: the last one.
    """
    offsets = (quarter * _QUARTER_NS for quarter in _ZONES)
    return [offset for offset in offsets if start <= first - offset and last - offset <= stop]


def timestamp_of(match: re.Match[bytes] | None, year: int = LEAP_YEAR) -> Timestamp | None:
    """Make a timestamp of its parts; None without them, or if there is no such time."""
    if match is None:
        return None
    parts = match.groupdict()
    # Horovod pads fractions with blanks.
    fraction = (parts.get("fraction") or b"").replace(b" ", b"0")[:9]
    fraction_ns, unit_ns = int(fraction.ljust(9, b"0")), 10 ** (9 - len(fraction))
    if "seconds" in parts:
        seconds = int(parts["seconds"])
        known = Timestamp(seconds * 10**9 + fraction_ns, True, unit_ns)
        return known if seconds < LATEST_SECOND else None
    printed = parts.get("year")
    if printed is not None:
        year = int(printed) + (2000 if len(printed) == 2 else 0)
    if year not in YEARS:
        return None
    month = parts.get("month")
    number = int(month) if month is not None else MONTHS.index(parts["name"]) + 1
    hour, minute, second = (int(part) for part in re.split(rb"[:.]", parts["time"]))
    zone = parts.get("zone")
    try:
        moment = datetime(
            year,
            number,
            int(parts["day"]),
            hour,
            minute,
            second,
            tzinfo=_zone(zone),
        )
    except ValueError:
        return None
    ns = round(moment.timestamp()) * 10**9 + fraction_ns
    return Timestamp(ns, zone is not None, unit_ns, printed is not None)


def _zone(text: bytes | None) -> timezone:
    if text is None or text == b"Z":
        return UTC
    ahead = timedelta(hours=int(text[1:3]), minutes=int(text[-2:]))
    return timezone(-ahead if text[:1] == b"-" else ahead)

"""The timestamps that launchers, loggers and log services put before lines."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone

# Other years are damage.
_YEARS = range(1970, 2200)
#: Seconds since 1970 from which on times are damage, too.
LATEST_SECOND = 7_258_118_400
_MONTHS = b"Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split()
#: As launchers write it, in words.
CTIME = (
    rb"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) (?P<name>Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) "
    rb"(?P<day>[ \d]\d) (?P<time>\d\d:\d\d:\d\d) (?P<year>\d{4})"
)
_STAMPS = (
    re.compile(rb"[\s\[]{0,8}" + CTIME),
    re.compile(
        rb"[\s\[]{0,8}(?P<year>\d{4})-(?P<month>\d\d)-(?P<day>\d\d)[T ](?P<time>\d\d:\d\d:\d\d)"
        rb"(?:[.,](?P<fraction>[ \d]{0,8}\d))?(?: ?(?P<zone>Z|[+-]\d\d:?\d\d))?"
    ),
    # Spark's log4j.
    re.compile(
        rb"[\s\[]{0,8}(?P<year>\d\d)/(?P<month>\d\d)/(?P<day>\d\d) (?P<time>\d\d:\d\d:\d\d)\b"
    ),
)

#: A timestamp of any of these forms, or seconds since 1970, in the middle of a line.
MOMENT = (
    r"\[?(?:[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}"
    r"|\d\d/\d\d/\d{4} \d\d:\d\d:\d\d"
    r"|(?:\d\d)?\d\d[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?: ?(?:Z|[+-]\d\d:?\d\d))?"
    r"|\d{9,10}(?:\.\d{1,12})?)\]?"
)
# As Hugging Face's examples log; no launcher puts it before lines.
_MONTH_FIRST = re.compile(
    rb"\[?(?P<month>\d\d)/(?P<day>\d\d)/(?P<year>\d{4}) (?P<time>\d\d:\d\d:\d\d)\b"
)
_SECONDS = re.compile(rb"(\d{9,10})(?:\.(\d{1,12}))?")


@dataclass(frozen=True)
class Timestamp:
    """When a line was printed: nanoseconds since 1970, in local time if the zone is unknown."""

    ns: int
    zone_known: bool
    #: What it is rounded down to: whole seconds, or as many digits as it has.
    resolution_ns: int = 10**9

    @property
    def text(self) -> str:
        """Format the time: ``2026-11-21 02:28:01``."""
        return f"{datetime.fromtimestamp(self.ns // 10**9, UTC):%Y-%m-%d %H:%M:%S}"


def read_timestamp(text: bytes) -> Timestamp | None:
    """Read the timestamp at the start of a text, None if there is none."""
    for form in _STAMPS:
        found = form.match(text)
        if found is not None:
            return _stamp(found.groupdict())
    return None


def read_moment(text: bytes) -> Timestamp | None:
    """Read a text that is a timestamp: as in ``read_timestamp``, month first, or seconds since
    1970.
    """
    seconds = _SECONDS.fullmatch(text.strip(b" []"))
    if seconds is None:
        month_first = _MONTH_FIRST.match(text)
        return read_timestamp(text) if month_first is None else _stamp(month_first.groupdict())
    if int(seconds[1]) >= LATEST_SECOND:
        return None
    fraction = (seconds[2] or b"")[:9]
    ns = int(seconds[1]) * 10**9 + int(fraction.ljust(9, b"0"))
    return Timestamp(ns, True, 10 ** (9 - len(fraction)))


def _stamp(parts: dict[str, bytes]) -> Timestamp | None:
    month = parts.get("month")
    year = int(parts["year"]) + (2000 if len(parts["year"]) == 2 else 0)
    if year not in _YEARS:
        return None
    number = int(month) if month is not None else _MONTHS.index(parts["name"]) + 1
    hour, minute, second = (int(part) for part in parts["time"].split(b":"))
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
    # Horovod pads fractions with blanks.
    fraction = (parts.get("fraction") or b"").replace(b" ", b"0")
    ns = round(moment.timestamp()) * 10**9 + int(fraction.ljust(9, b"0"))
    return Timestamp(ns, zone is not None, 10 ** (9 - len(fraction)))


def _zone(text: bytes | None) -> timezone:
    if text is None or text == b"Z":
        return UTC
    ahead = timedelta(hours=int(text[1:3]), minutes=int(text[-2:]))
    return timezone(-ahead if text[:1] == b"-" else ahead)

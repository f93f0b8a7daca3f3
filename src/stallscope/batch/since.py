"""Parse ``--since``: 2026-11-01, 2026-11-01T08:30, 7d, 12h."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from stallscope.errors import UsageError

_SPAN = re.compile(r"(\d{1,6})\s*(min|h|d|w)")
_UNITS = {"min": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def parse_since(text: str, now: datetime) -> datetime:
    """Return the time of a date or an age; dates start at midnight UTC.

    Raises:
        UsageError: if the text is neither.
    """
    span = _SPAN.fullmatch(text.strip())
    try:
        if span is not None:
            return now - timedelta(**{_UNITS[span[2]]: int(span[1])})
        moment = datetime.fromisoformat(text.strip())
    except (ValueError, OverflowError):
        raise UsageError(
            f"--since {text}: give a date such as 2026-11-01, or an age such as 7d or 12h"
        ) from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)

"""Facts from logs as values that SQLite and JSON can hold; what is none of that kind is None."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from typing import Any

# No encoding of text can hold them.
_LONE_SURROGATES = re.compile("[\ud800-\udfff]")
_LARGEST = 2**63


def text(value: Any) -> str | None:
    return None if value is None else _LONE_SURROGATES.sub("\ufffd", str(value))


def whole(value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if -_LARGEST <= value < _LARGEST else None


def number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if math.isfinite(value) else None


def moment(value: datetime | str | None) -> str | None:
    """A time in UTC, always of the same length, so that texts sort as times do."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            return None
    if value is None:
        return None
    if value.tzinfo is None:
        value = value.replace(tzinfo=UTC)
    return value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")

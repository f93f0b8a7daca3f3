"""Convert facts from logs to values for SQLite and JSON; other types become None."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from typing import Any

# Lone surrogates cannot be encoded.
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
    """Return a time in UTC as text of constant length, so that texts sort like times."""
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

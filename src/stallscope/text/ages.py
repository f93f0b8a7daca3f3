"""How long ago something was, in one unit."""

from __future__ import annotations

from datetime import datetime

_UNITS = ((86400, "d"), (3600, "h"), (60, "min"))


def age(began: str | None, now: datetime) -> str:
    """5 h; nothing where it is not known when it began."""
    if began is None:
        return ""
    seconds = (now - datetime.fromisoformat(began)).total_seconds()
    return next(
        (f"{int(seconds // length)} {unit}" for length, unit in _UNITS if seconds >= length), "now"
    )

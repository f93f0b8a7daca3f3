"""Write how long ago something was, in one unit."""

from __future__ import annotations

from datetime import datetime

_UNITS = ((86400, "d"), (3600, "h"), (60, "min"))


def age(began: str | None, now: datetime) -> str:
    """Write an age: 5 h; empty if the start is unknown."""
    if began is None:
        return ""
    seconds = (now - datetime.fromisoformat(began)).total_seconds()
    return next(
        (f"{int(seconds // length)} {unit}" for length, unit in _UNITS if seconds >= length), "now"
    )

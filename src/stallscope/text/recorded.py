"""Write recorded values for people: ages, and code in sentences."""

from __future__ import annotations

from datetime import datetime

_UNITS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def age(began: str | None, now: datetime) -> str:
    """Write an age: 5 h; empty if the start is unknown."""
    if began is None:
        return ""
    seconds = (now - datetime.fromisoformat(began)).total_seconds()
    return "now" if seconds < 60 else rough_duration(seconds)


def rough_duration(seconds: float) -> str:
    """Write a duration in whole units, rounded down: 12 min."""
    return next(
        f"{int(seconds // length)} {unit}"
        for length, unit in _UNITS
        if seconds >= length or length == 1
    )


def code_parts(text: str) -> list[tuple[str, bool]]:
    """Split a sentence into words and code; unpaired backticks are words."""
    split = text.split("`")
    if len(split) % 2 == 0:
        return [(text, False)]
    return [(part, bool(at % 2)) for at, part in enumerate(split) if part]

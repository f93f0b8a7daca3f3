"""Places on the axis of time as addresses name them: by step, so that people can read them.

``from=120`` is where step 120 begins, ``to=120`` where it ends; ``from=120.25`` is a quarter into it.
"""

from __future__ import annotations

import re

import numpy as np

from stallscope.analysis.views.lanes import Lanes

_STEP = re.compile(r"([0-9]{1,18})(?:\.([0-9]{1,6}))?")
# From so many steps on fractions of them are not visible.
_WHOLE_STEPS = 30


def begin_of(lanes: Lanes, text: str | None) -> int | None:
    """Nanoseconds at which what ``from`` names begins; None where it names nothing."""
    found = _read(text)
    if found is None:
        return None
    at = _first_from(lanes, found[0])
    return _within(lanes, at, found[1]) if lanes.ledger.steps[at] == found[0] else _begin(lanes, at)


def end_of(lanes: Lanes, text: str | None) -> int | None:
    """Nanoseconds at which what ``to`` names ends; None where it names nothing."""
    found = _read(text)
    if found is None:
        return None
    at = _last_until(lanes, found[0])
    if found[1] and lanes.ledger.steps[at] == found[0]:
        return _within(lanes, at, found[1])
    return int(lanes.end[at])


def names(lanes: Lanes, begin: int, end: int) -> tuple[str, str] | None:
    """``from`` and ``to`` of a part of the run; None where it is all of it."""
    if begin <= 0 and end >= lanes.span:
        return None
    first = lanes.at(begin)
    last = max(first, int(np.searchsorted(lanes.begin, end, "left")) - 1)
    if last - first >= _WHOLE_STEPS:
        return _name(lanes, first, 0.0), _name(lanes, last, 0.0)
    low, high = _part(lanes, first, begin), _part(lanes, last, end)
    return _name(lanes, first, low), _name(lanes, last, high if high < 0.9995 else 0.0)


def _read(text: str | None) -> tuple[int, float] | None:
    found = _STEP.fullmatch(text or "")
    return None if found is None else (int(found[1]), float(f"0.{found[2] or 0}"))


def _first_from(lanes: Lanes, step: int) -> int:
    """The first position with this step, or one after it; the last one where there is none."""
    found = np.flatnonzero(lanes.ledger.steps >= step)
    return int(found[0]) if len(found) else len(lanes) - 1


def _last_until(lanes: Lanes, step: int) -> int:
    """The last position with this step, or one before it; the first one where there is none."""
    found = np.flatnonzero(lanes.ledger.steps <= step)
    return int(found[-1]) if len(found) else 0


def _begin(lanes: Lanes, at: int) -> int:
    return int(lanes.begin[at])


def _within(lanes: Lanes, at: int, part: float) -> int:
    return int(lanes.begin[at] + part * (lanes.end[at] - lanes.begin[at]))


def _part(lanes: Lanes, at: int, time: int) -> float:
    length = max(int(lanes.end[at] - lanes.begin[at]), 1)
    return min(max((time - int(lanes.begin[at])) / length, 0.0), 1.0)


def _name(lanes: Lanes, at: int, part: float) -> str:
    step = int(lanes.ledger.steps[at])
    fraction = f"{part:.3f}".removeprefix("0").rstrip("0").rstrip(".")
    return f"{step}{fraction}" if part < 0.9995 else f"{step}.999"

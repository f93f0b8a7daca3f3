"""Positions on the time axis as addresses write them: by step, so that people can read them.

``from=120`` is the start of step 120, ``to=120`` its end; ``from=120.25`` is a quarter into it.
"""

from __future__ import annotations

import re

import numpy as np

from stallscope.analysis.views.lanes import Lanes

_STEP = re.compile(r"([0-9]{1,18})(?:\.([0-9]{1,6}))?")
# In views of more steps, fractions of a step are not visible.
_WHOLE_STEPS = 30
# Fractions from here on would round to the next step.
_ALMOST_ONE = 0.9995


def start_of(lanes: Lanes, text: str | None) -> int | None:
    """Return the start of the view that ``from`` names, in nanoseconds; None if it is not valid."""
    return _position(lanes, text, at_end=False)


def end_of(lanes: Lanes, text: str | None) -> int | None:
    """Return the end of the view that ``to`` names, in nanoseconds; None if it is not valid."""
    return _position(lanes, text, at_end=True)


def names(lanes: Lanes, start: int, end: int) -> tuple[str, str] | None:
    """Return ``from`` and ``to`` of a part of the run; None for the whole run."""
    if start <= 0 and end >= lanes.span:
        return None
    first = lanes.at(start)
    last = max(first, int(np.searchsorted(lanes.begin, end, "left")) - 1)
    if last - first >= _WHOLE_STEPS:
        return _name(lanes, first, 0.0), _name(lanes, last, 0.0)
    low, high = _fraction(lanes, first, start), _fraction(lanes, last, end)
    return _name(lanes, first, low), _name(lanes, last, high if high < _ALMOST_ONE else 0.0)


def _position(lanes: Lanes, text: str | None, *, at_end: bool) -> int | None:
    """Return the time of a position; of a step that is not in the run, that of the one next to it."""
    match = _STEP.fullmatch(text or "")
    if match is None:
        return None
    step, fraction, steps = int(match[1]), float(f"0.{match[2] or 0}"), lanes.ledger.steps
    if at_end:
        found = np.flatnonzero(steps <= step)
        at = int(found[-1]) if len(found) else 0
    else:
        found = np.flatnonzero(steps >= step)
        at = int(found[0]) if len(found) else len(lanes) - 1
    if not fraction or steps[at] != step:
        fraction = float(at_end)
    return int(lanes.begin[at]) + int(fraction * (lanes.end[at] - lanes.begin[at]))


def _fraction(lanes: Lanes, at: int, time: int) -> float:
    length = max(int(lanes.end[at] - lanes.begin[at]), 1)
    return min(max((time - int(lanes.begin[at])) / length, 0.0), 1.0)


def _name(lanes: Lanes, at: int, fraction: float) -> str:
    step = int(lanes.ledger.steps[at])
    digits = f"{fraction:.3f}".removeprefix("0").rstrip("0").rstrip(".")
    return f"{step}{digits}" if fraction < _ALMOST_ONE else f"{step}.999"

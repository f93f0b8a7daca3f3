"""Positions on the time axis as addresses write them: by step, so that people can read them.

``from=120`` is the start of step 120, ``to=120`` its end; ``from=120.25`` is a quarter into it. Where a
run has several generations, ``120g1`` is step 120 of generation 1, and ``rank=2g1`` its rank 2.
"""

from __future__ import annotations

import re

import numpy as np

from stallscope.analysis.views.lanes import Lanes

_STEP = re.compile(r"([0-9]{1,18})(?:\.([0-9]{1,6}))?(?:g([0-9]{1,9}))?")
_RANK = re.compile(r"([0-9]{1,9})(?:g([0-9]{1,9}))?")
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


def row_of(lanes: Lanes, text: str | None) -> int | None:
    """Return the row of the rank that ``rank`` names; None if it is not valid."""
    match = _RANK.fullmatch(text or "")
    if match is None:
        return None
    if match[2] is None:
        return lanes.row_of(int(match[1]))
    own = _generation(lanes, match[2])
    return None if own is None else lanes.row_of(int(match[1]), own)


def row_names(lanes: Lanes) -> list[str]:
    """Return the name of each row: its rank, and a generation if that number was elsewhere later."""
    found = [""] * len(lanes.ranks)
    last: dict[int, int] = {}
    for index, generation in enumerate(lanes.generations):
        rows = lanes.rows_of(index).tolist()
        last.update(zip(generation.ledger.ranks, rows, strict=True))
        for row, rank in zip(rows, generation.ledger.ranks, strict=True):
            found[row] = f"{rank}g{generation.number}"
    for rank, row in last.items():
        found[row] = str(rank)
    return found


def _generation(lanes: Lanes, number: str) -> int | None:
    """Return the position of the generation with a number."""
    numbers = [one.number for one in lanes.generations]
    return numbers.index(int(number)) if int(number) in numbers else None


def _position(lanes: Lanes, text: str | None, *, at_end: bool) -> int | None:
    """Return the time of a position; of a step that is not in the run, that of the one next to it."""
    match = _STEP.fullmatch(text or "")
    if match is None:
        return None
    step, fraction = int(match[1]), float(f"0.{match[2] or 0}")
    low, high = 0, len(lanes)
    if match[3] is not None:
        own = _generation(lanes, match[3])
        if own is None:
            return None
        low, high = lanes.starts[own : own + 2].tolist()
    steps = lanes.steps[low:high]
    if at_end:
        found = np.flatnonzero(steps <= step)
        at = low + (int(found[-1]) if len(found) else 0)
    else:
        found = np.flatnonzero(steps >= step)
        at = low + (int(found[0]) if len(found) else len(steps) - 1)
    if not fraction or lanes.steps[at] != step:
        fraction = float(at_end)
    return int(lanes.begin[at]) + int(fraction * (lanes.end[at] - lanes.begin[at]))


def _fraction(lanes: Lanes, at: int, time: int) -> float:
    length = max(int(lanes.end[at] - lanes.begin[at]), 1)
    return min(max((time - int(lanes.begin[at])) / length, 0.0), 1.0)


def _name(lanes: Lanes, at: int, fraction: float) -> str:
    step = int(lanes.steps[at])
    digits = f"{fraction:.3f}".removeprefix("0").rstrip("0").rstrip(".")
    if fraction >= _ALMOST_ONE:
        digits = ".999"
    if len(lanes.generations) == 1:
        return f"{step}{digits}"
    (own,) = lanes.generation_at(np.array([at]))
    return f"{step}{digits}g{lanes.generations[own].number}"

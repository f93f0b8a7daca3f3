"""Encode a part of a run as bytes that the browser uses without parsing, with the place of each step.

The body starts with the length of the JSON (a 32-bit integer, little-endian). Spaces pad the JSON so
that the arrays after it are aligned to eight bytes. The JSON contains each array's name, type, length
and offset.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from stallscope.analysis.views.lanes import Floats32, Lanes, LanesView

from .gauges import Gauge, columns_of

_S = 1e-9
# More values are sent as 16-bit integers, which is enough for pixels.
_MOST_FLOATS = 120_000
_LARGEST = 65_534
_MISSING = 65_535
_ALIGNMENT = 8

_STEP = re.compile(r"([0-9]{1,18})(?:\.([0-9]{1,6}))?(?:g([0-9]{1,9}))?")
_RANK = re.compile(r"([0-9]{1,9})(?:g([0-9]{1,9}))?")
# In views of more steps, fractions of a step are not visible.
_WHOLE_STEPS = 30
# Fractions from here on would round to the next step.
_ALMOST_ONE = 0.9995


def answer(
    lanes: Lanes, start: int, end: int, columns: int, view: LanesView, gauge: Gauge | None = None
) -> bytes:
    """Encode the timeline between two times, in nanoseconds, for a number of columns."""
    shortest = max(1, (end - start) // max(columns, 1))
    head: dict[str, Any] = {
        "begin": start * _S,
        "end": end * _S,
        "names": names(lanes, start, end),
        "stepsPerCell": view.steps_per_cell,
        "cells": len(view.first_step),
        "edges": view.edges.tolist(),
        "gaps": gaps_between(lanes, start, end, shortest),
        "epochs": _epochs(lanes, view),
    }
    arrays = {**_per_cell(lanes, view), **_per_lane(head, view)}
    if gauge is not None:
        head["gauge"] = gauge.quantity.key
        arrays.update(columns_of(gauge, start, end, columns))
    return _packed(head, arrays)


def gaps_between(lanes: Lanes, start: int, end: int, shortest: int) -> list[list[float]]:
    """Return the gaps between steps: the start and the duration of each part, in seconds."""
    gaps = lanes.gaps(start, end, shortest)
    return [[gap.begin * _S, *(part * _S for part in gap.parts)] for gap in gaps]


def _per_cell(lanes: Lanes, view: LanesView) -> dict[str, npt.NDArray[Any]]:
    single = view.steps_per_cell == 1
    unknown = np.full(len(view.first_step), -1)
    return {
        "cellBegin": lanes.begin[view.first_step] * _S,
        "cellEnd": lanes.end[view.last_step] * _S,
        "firstStep": lanes.steps[view.first_step].astype(np.float64),
        "lastStep": lanes.steps[view.last_step].astype(np.float64),
        "generation": view.generation.astype(np.int32),
        "epoch": lanes.epochs[view.first_step].astype(np.int32),
        "total": view.total,
        "allreduce": view.allreduce,
        "last": view.last.astype(np.int32),
        "lastCount": view.last_count.astype(np.int32),
        "reference": (lanes.reference_rows(view.first_step) if single else unknown).astype(
            np.int32
        ),
        "cause": (lanes.causes(view.first_step) if single else unknown).astype(np.int32),
    }


def _per_lane(head: dict[str, Any], view: LanesView) -> dict[str, npt.NDArray[Any]]:
    late = np.stack([view.late, view.latest])
    arrays = {"stages": view.stages, "late": late}
    members = {"members": view.members.astype(np.int32)}
    if view.stages.size + late.size <= _MOST_FLOATS:
        return arrays | members
    scaled: dict[str, npt.NDArray[Any]] = members
    head["scales"] = {}
    for name, array in arrays.items():
        scaled[name], head["scales"][name] = _scaled(array)
    return scaled


def _scaled(array: Floats32) -> tuple[npt.NDArray[np.uint16], list[float]]:
    """Scale values to 16-bit integers; return the offset and the unit that restore them, too."""
    known = np.isfinite(array)
    low = float(array.min(initial=0.0, where=known))
    high = float(array.max(initial=0.0, where=known))
    unit = (high - low) / _LARGEST or 1.0
    whole = np.rint((np.where(known, array, low) - low) / unit)
    return np.where(known, whole, _MISSING).astype(np.uint16), [low, unit]


def _epochs(lanes: Lanes, view: LanesView, most: int = 200) -> list[tuple[float, int]]:
    """Return the starts of epochs, in seconds, with their numbers; evenly thinned out if many."""
    first, last = int(view.first_step[0]), int(view.last_step[-1])
    epochs = lanes.epochs[max(first - 1, 0) : last + 1]
    at = np.flatnonzero(np.diff(epochs)) + max(first - 1, 0) + 1
    if first == 0:
        at = np.append(0, at)
    at = at[lanes.epochs[at] >= 0]
    at = at[:: -(-len(at) // most) or 1]
    return [(float(lanes.begin[step]) * _S, int(lanes.epochs[step])) for step in at]


def _packed(head: dict[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> bytes:
    offsets, parts, at = {}, [], 0
    for name, array in arrays.items():
        little = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
        data = little.tobytes()
        offsets[name] = [f"{array.dtype.kind}{array.dtype.itemsize}", array.size, at]
        data += b"\0" * (-len(data) % _ALIGNMENT)
        parts.append(data)
        at += len(data)
    text = json.dumps({**head, "arrays": offsets}, separators=(",", ":")).encode()
    text += b" " * (-(4 + len(text)) % _ALIGNMENT)
    return b"".join([len(text).to_bytes(4, "little"), text, *parts])


# -- Positions on the time axis as addresses write them: by step, so that people can read them ----
#
# ``from=120`` is the start of step 120, ``to=120`` its end; ``from=120.25`` is a quarter into it.
# Where a run has several generations, ``120g1`` is step 120 of generation 1, and ``rank=2g1`` its
# rank 2.


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
    generation = _generation(lanes, match[2])
    return None if generation is None else lanes.row_of(int(match[1]), generation)


def row_names(lanes: Lanes) -> list[str]:
    """Return the name of each row: its rank, and a generation if that number was elsewhere later."""
    names = [""] * len(lanes.ranks)
    last: dict[int, int] = {}
    for index, generation in enumerate(lanes.generations):
        rows = lanes.rows_of(index).tolist()
        last.update(zip(generation.ledger.ranks, rows, strict=True))
        for row, rank in zip(rows, generation.ledger.ranks, strict=True):
            names[row] = f"{rank}g{generation.number}"
    for rank, row in last.items():
        names[row] = str(rank)
    return names


def _generation(lanes: Lanes, number: str) -> int | None:
    """Return the position of the generation with a number."""
    numbers = [generation.number for generation in lanes.generations]
    return numbers.index(int(number)) if int(number) in numbers else None


def _position(lanes: Lanes, text: str | None, *, at_end: bool) -> int | None:
    """Return the time of a position; of a step that is not in the run, that of the one next to it."""
    match = _STEP.fullmatch(text or "")
    if match is None:
        return None
    step, fraction = int(match[1]), float(f"0.{match[2] or 0}")
    low, high = 0, len(lanes)
    if match[3] is not None:
        generation = _generation(lanes, match[3])
        if generation is None:
            return None
        low, high = lanes.starts[generation : generation + 2].tolist()
    steps = lanes.steps[low:high]
    if at_end:
        places = np.flatnonzero(steps <= step)
        at = low + (int(places[-1]) if len(places) else 0)
    else:
        places = np.flatnonzero(steps >= step)
        at = low + (int(places[0]) if len(places) else len(steps) - 1)
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
    (generation,) = lanes.generation_at(np.array([at]))
    return f"{step}{digits}g{lanes.generations[generation].number}"

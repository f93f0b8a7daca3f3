"""Encode a part of a run as bytes: JSON, then arrays that the browser uses without parsing.

The body starts with the length of the JSON (a 32-bit integer, little-endian). Spaces pad the JSON so
that the arrays after it are aligned to eight bytes. The JSON contains each array's name, type, length
and offset.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from stallscope.analysis.views.lanes import Floats32, Lanes, LanesView

from .gauges import Gauge, columns_of
from .positions import names

_S = 1e-9
# More values are sent as 16-bit integers, which is enough for pixels.
_MOST_FLOATS = 120_000
_LARGEST = 65_534
_MISSING = 65_535
_ALIGNMENT = 8


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
    found = lanes.gaps(start, end, shortest)
    return [[gap.begin * _S, *(part * _S for part in gap.parts)] for gap in found]


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
    return [(float(lanes.begin[one]) * _S, int(lanes.epochs[one])) for one in at]


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

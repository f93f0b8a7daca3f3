"""Collect the allreduces of each step of a timeline."""

from __future__ import annotations

import numpy as np

from stallscope.arrays.types import Floats, Ints

from .figures import AllreduceSteps
from .segment import Segment, added_us

_TIMES = ("step", "negotiation", "operation", "wait", "copy", "transfer")


def step_starts(tensor: Ints, begin: Ints) -> Ints:
    """Find the starts of steps: the first negotiation of a gradient that the previous step had, too.

    Args:
        tensor: the tensor of each negotiation of a gradient, in the order of their starts.
        begin: the start of each negotiation.
    """
    if not len(tensor):
        return begin
    order = np.argsort(tensor, kind="stable")
    again = np.append(False, tensor[order][1:] == tensor[order][:-1])
    # The position where the same gradient was negotiated before, and its maximum up to each position.
    before = np.full(len(tensor), -1)
    before[order[again]] = order[np.flatnonzero(again) - 1]
    latest = np.maximum.accumulate(before)
    starts = [0]
    while (start := int(np.searchsorted(latest, starts[-1]))) < len(tensor):
        starts.append(start)
    return begin[starts]


class StepTally:
    """Collects the times of each step's allreduces."""

    def __init__(self) -> None:
        self._starts: list[Ints] = []
        self._times: dict[str, list[np.ndarray[tuple[int], np.dtype[np.float32]]]] = {
            name: [] for name in _TIMES
        }
        self._tensors: list[Ints] = []
        self._reductions: list[Ints] = []

    def add(self, segment: Segment) -> None:
        starts = segment.step_starts
        if not len(starts):
            return
        until = np.nan if segment.until is None else float(segment.until)
        parts, _ = segment.allreduce_parts
        kinds = segment.kinds(parts)
        times = {
            "step": np.diff(np.append(starts.astype(np.float64), until)),
            "negotiation": _covered(
                segment.negotiated_allreduces.begin, segment.negotiated_allreduces.end, starts
            ),
            "operation": _covered(segment.allreduces.begin, segment.allreduces.end, starts),
            **{
                kind: _covered(parts.begin[chosen], parts.end[chosen], starts)
                for kind, chosen in kinds.items()
            },
        }
        for name, took in times.items():
            self._times[name].append((took / 1e3).astype(np.float32))
        self._starts.append(starts)
        step = _step_of(segment.allreduces.begin, starts)
        group = segment.reductions
        first = np.append(True, group[1:] != group[:-1])[: len(step)]
        self._tensors.append(_counted(step, len(starts)))
        self._reductions.append(_counted(step[first], len(starts)))

    def found(self) -> AllreduceSteps:
        none = np.zeros(0, np.int64)
        times = {name: np.concatenate([np.zeros(0), *found]) for name, found in self._times.items()}
        return AllreduceSteps(
            start_us=np.concatenate([none, *self._starts]),
            step_ms=times["step"],
            negotiation_ms=times["negotiation"],
            operation_ms=times["operation"],
            wait_ms=times["wait"],
            copy_ms=times["copy"],
            transfer_ms=times["transfer"],
            tensors=np.concatenate([none, *self._tensors]),
            reductions=np.concatenate([none, *self._reductions]),
        )


def _step_of(at: Ints, starts: Ints) -> Ints:
    """Return the step of each moment; -1 before the first step."""
    return np.searchsorted(starts, at, "right") - 1


def _counted(step: Ints, steps: int) -> Ints:
    return np.bincount(step[step >= 0], minlength=steps).astype(np.int64)


def _covered(begin: Ints, end: Ints, starts: Ints) -> Floats:
    """Return the microseconds that activities cover together, by the step in which they start."""
    step = _step_of(begin, starts)
    own = step >= 0
    added = added_us(begin[own], end[own])
    return np.bincount(step[own], added, minlength=len(starts)).astype(np.float64)

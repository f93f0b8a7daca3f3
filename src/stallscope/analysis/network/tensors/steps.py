"""The allreduces of each step."""

from __future__ import annotations

import numpy as np

from stallscope.arrays.types import Floats, Ints

from .figures import AllreduceSteps
from .piece import Piece, added_us

_TIMES = ("step", "negotiation", "operation", "wait", "copy", "transfer")


def step_begins(tensor: Ints, begin: Ints) -> Ints:
    """When steps begin: at the first negotiation of a gradient that the step before had, too.

    Args:
        tensor: gradients, in the order in which their negotiations begin.
        begin: of these.
    """
    if not len(tensor):
        return begin
    order = np.argsort(tensor, kind="stable")
    again = np.append(False, tensor[order][1:] == tensor[order][:-1])
    # Where the same gradient was negotiated before, and the latest such place up to each one.
    before = np.full(len(tensor), -1)
    before[order[again]] = order[np.flatnonzero(again) - 1]
    latest = np.maximum.accumulate(before)
    starts = [0]
    while (start := int(np.searchsorted(latest, starts[-1]))) < len(tensor):
        starts.append(start)
    return begin[starts]


class StepTally:
    def __init__(self) -> None:
        self._begins: list[Ints] = []
        self._times: dict[str, list[np.ndarray[tuple[int], np.dtype[np.float32]]]] = {
            name: [] for name in _TIMES
        }
        self._tensors: list[Ints] = []
        self._reductions: list[Ints] = []

    def add(self, piece: Piece) -> None:
        begins = piece.step_begins
        if not len(begins):
            return
        until = np.nan if piece.until is None else float(piece.until)
        parts, _ = piece.allreduce_parts
        kinds = piece.kinds(parts)
        times = {
            "step": np.diff(np.append(begins.astype(np.float64), until)),
            "negotiation": _covered(
                piece.negotiated_allreduces.begin, piece.negotiated_allreduces.end, begins
            ),
            "operation": _covered(piece.allreduces.begin, piece.allreduces.end, begins),
            **{
                kind: _covered(parts.begin[chosen], parts.end[chosen], begins)
                for kind, chosen in kinds.items()
            },
        }
        for name, took in times.items():
            self._times[name].append((took / 1e3).astype(np.float32))
        self._begins.append(begins)
        step = _step_of(piece.allreduces.begin, begins)
        group = piece.reductions
        fresh = np.append(True, group[1:] != group[:-1])[: len(step)]
        self._tensors.append(_counted(step, len(begins)))
        self._reductions.append(_counted(step[fresh], len(begins)))

    def found(self) -> AllreduceSteps:
        none = np.zeros(0, np.int64)
        times = {name: np.concatenate([np.zeros(0), *found]) for name, found in self._times.items()}
        return AllreduceSteps(
            begin_us=np.concatenate([none, *self._begins]),
            step_ms=times["step"],
            negotiation_ms=times["negotiation"],
            operation_ms=times["operation"],
            wait_ms=times["wait"],
            copy_ms=times["copy"],
            transfer_ms=times["transfer"],
            tensors=np.concatenate([none, *self._tensors]),
            reductions=np.concatenate([none, *self._reductions]),
        )


def _step_of(at: Ints, begins: Ints) -> Ints:
    """The step that a moment lies in; -1 before the first one."""
    return np.searchsorted(begins, at, "right") - 1


def _counted(step: Ints, steps: int) -> Ints:
    return np.bincount(step[step >= 0], minlength=steps).astype(np.int64)


def _covered(begin: Ints, end: Ints, begins: Ints) -> Floats:
    """Microseconds that activities cover together, by the step in which they begin."""
    step = _step_of(begin, begins)
    own = step >= 0
    added = added_us(begin[own], end[own])
    return np.bincount(step[own], added, minlength=len(begins)).astype(np.float64)

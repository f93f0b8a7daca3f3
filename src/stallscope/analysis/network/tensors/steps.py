"""Collect the allreduces of each step of a timeline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from stallscope.arrays.types import Floats, Ints

from .figures import AllreduceSteps
from .negotiation_log import NegotiationLog
from .segment import ActivitySegment, added_us

_TIMES = ("negotiation", "operation", "wait", "copy", "transfer")


class StepTally:
    """Collects the times of each burst's allreduces; a step's are the sums over its bursts."""

    def __init__(self) -> None:
        self._log = NegotiationLog()
        self._starts: list[Ints] = []
        #: The position in the log of each burst's first negotiation.
        self._first: list[Ints] = []
        self._times: dict[str, list[np.ndarray[tuple[int], np.dtype[np.float32]]]] = {
            name: [] for name in _TIMES
        }
        self._tensors: list[np.ndarray[tuple[int], np.dtype[np.int32]]] = []
        self._reductions: list[np.ndarray[tuple[int], np.dtype[np.int32]]] = []

    def add(self, segment: ActivitySegment) -> None:
        if segment.restarted:
            self._log.restart()
        starts = segment.burst_starts
        if not len(starts):
            return
        self._first.append(len(self._log) + np.searchsorted(segment.counted[0].begin, starts))
        self._log.add(segment)
        self._starts.append(starts)
        parts, _ = segment.allreduce_parts
        kinds = segment.kinds(parts)
        times = {
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
        burst = _burst_of(segment.allreduces.begin, starts)
        group = segment.reductions
        first = np.append(True, group[1:] != group[:-1])[: len(burst)]
        self._tensors.append(_counted(burst, len(starts)))
        self._reductions.append(_counted(burst[first], len(starts)))

    def steps(self, names: Mapping[int, str]) -> tuple[AllreduceSteps, str]:
        """Return the steps, and why they are unknown; an empty text if they are known.

        Args:
            names: names of tensors by number.
        """
        positions, unknown = self._log.steps(names)
        if not len(positions):
            return _none(), unknown
        starts = np.concatenate(self._starts)
        first = np.concatenate(self._first)
        # In a damaged timeline several steps may seem to start in one burst.
        burst, kept = np.unique(np.searchsorted(first, positions, "right") - 1, return_index=True)
        positions = positions[kept]
        start_us = starts[burst]
        step_ms = np.append(np.diff(start_us), 0) / 1e3
        # The last step before a restart has no next one, and neither has the very last one.
        step_ms[np.searchsorted(positions, [*self._log.jobs[1:], len(self._log)]) - 1] = np.nan
        times = {name: _sums(values, burst) for name, values in self._times.items()}
        steps = AllreduceSteps(
            start_us=start_us,
            step_ms=step_ms,
            negotiation_ms=times["negotiation"],
            operation_ms=times["operation"],
            wait_ms=times["wait"],
            copy_ms=times["copy"],
            transfer_ms=times["transfer"],
            tensors=_sums(self._tensors, burst).astype(np.int64),
            reductions=_sums(self._reductions, burst).astype(np.int64),
        )
        return steps, unknown


def _none() -> AllreduceSteps:
    ints, floats = np.zeros(0, np.int64), np.zeros(0)
    return AllreduceSteps(ints, floats, floats, floats, floats, floats, floats, ints, ints)


def _sums(parts: Sequence[np.ndarray[Any, Any]], step: Ints) -> Floats:
    """Add up the bursts' values from the start of each step to the next one."""
    values = np.concatenate([np.zeros(0), *parts])
    return np.add.reduceat(values, step)


def _burst_of(at: Ints, starts: Ints) -> Ints:
    """Return the burst of each moment; -1 before the first one."""
    return np.searchsorted(starts, at, "right") - 1


def _counted(burst: Ints, bursts: int) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    return np.bincount(burst[burst >= 0], minlength=bursts).astype(np.int32)


def _covered(begin: Ints, end: Ints, starts: Ints) -> Floats:
    """Return the microseconds that activities cover together, by the burst in which they start."""
    burst = _burst_of(begin, starts)
    known = burst >= 0
    added = added_us(begin[known], end[known])
    return np.bincount(burst[known], added, minlength=len(starts)).astype(np.float64)

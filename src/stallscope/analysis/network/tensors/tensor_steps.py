"""Collect the allreduces of each step of a timeline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from stallscope.arrays.types import Bools, Floats, Ints

from .repetitions import Negotiations, step_positions
from .segment import ActivitySegment, added_us, distinct, is_reductions_negotiation
from .tensor_figures import AllreduceSteps

_TIMES = ("negotiation", "operation", "wait", "copy", "transfer")

_UNKNOWN = -1
_LONGEST_IDLE_US = (1 << 31) - 1
#: A tensor's number, the bytes of its reduction, and whether it is reduced. Custom loops may give one
#: name to tensors of several sizes. Other operations than reductions may change their sizes.
_Key = tuple[int, int, bool]


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


# -- Record the negotiated tensors in order, to find steps once all of them are known -------------


class NegotiationLog:
    """Collects the negotiations of operations that steps may consist of."""

    def __init__(self) -> None:
        self._codes: dict[_Key, int] = {}
        #: Bytes of the last operation.
        self._size: dict[_Key, int] = {}
        self._tensor: list[np.ndarray[tuple[int], np.dtype[np.int32]]] = []
        self._idle_us: list[np.ndarray[tuple[int], np.dtype[np.int32]]] = []
        self._count = 0
        self._operated_until = 0
        #: Positions of the first negotiations of each job.
        self.jobs = [0]

    def __len__(self) -> int:
        return self._count

    def restart(self) -> None:
        """Begin with the negotiations of a job that was started again."""
        if self._count > self.jobs[-1]:
            self.jobs.append(self._count)

    def add(self, segment: ActivitySegment) -> None:
        rows, size = segment.counted
        reduced = segment.of(rows, is_reductions_negotiation)
        self._tensor.append(self._coded(rows.tensor, size, reduced).astype(np.int32))
        self._idle_us.append(self._idle(segment, rows.begin))
        self._count += len(rows)

    def _coded(self, tensor: Ints, size: Ints, reduced: Bools) -> Ints:
        """Number tensors by their keys."""
        pairs, index = distinct(tensor * 2 + reduced)
        sizes = np.full(len(pairs), _UNKNOWN)
        sizes[index] = size
        if (sizes[index] != size).any():
            # A tensor has several sizes.
            sized, size_index = np.unique(size, return_inverse=True)
            combinations, index = np.unique(index * len(sized) + size_index, return_inverse=True)
            pairs, sizes = pairs[combinations // len(sized)], sized[combinations % len(sized)]
        codes = []
        for pair, tensor_size in zip(pairs.tolist(), sizes.tolist(), strict=True):
            key = (pair // 2, tensor_size if pair % 2 else _UNKNOWN, pair % 2 == 1)
            codes.append(self._codes.setdefault(key, len(self._codes)))
            self._size[key] = max(tensor_size, self._size.get(key, _UNKNOWN))
        return np.array(codes, np.int64)[index]

    def _idle(
        self, segment: ActivitySegment, begin: Ints
    ) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
        """Return the microseconds without any operation before each moment."""
        operations = segment.operations
        reached = np.maximum.accumulate(np.append(self._operated_until, operations.end))
        until = reached[np.searchsorted(operations.begin, begin)]
        self._operated_until = int(reached[-1])
        return np.clip(begin - until, 0, _LONGEST_IDLE_US).astype(np.int32)

    def steps(self, names: Mapping[int, str]) -> tuple[Ints, str]:
        """Return the positions of the negotiations at which steps start, and why there are none.

        Args:
            names: names of tensors by number.
        """
        none = np.zeros(0, np.int64)
        tensor = np.concatenate([none.astype(np.int32), *self._tensor])
        keys = list(self._codes)
        known = _known(keys, np.bincount(tensor, minlength=len(keys)))
        reduced = np.array([key[2] for key in keys], bool)
        # If nothing is reduced, steps may consist of other operations, as with embeddings only.
        chosen = np.flatnonzero(reduced[tensor]) if reduced.any() else np.arange(len(tensor))
        negotiations = Negotiations(
            known[tensor[chosen]],
            np.concatenate([none.astype(np.int32), *self._idle_us])[chosen],
            np.unique(np.searchsorted(chosen, self.jobs)),
        )
        size: Floats = np.array([self._size[key] for key in keys], np.float64)
        size[size < 0] = np.nan
        positions, unknown = step_positions(
            negotiations, size, [names.get(key[0], "") for key in keys]
        )
        return chosen[positions], unknown


def _known(keys: list[_Key], count: Ints) -> Ints:
    """Return the code of each key; unknown sizes count as the tensor's most frequent size."""
    codes = {key: code for code, key in enumerate(keys)}
    usual: dict[tuple[int, bool], int] = {}
    for (number, size, is_reduced), code in codes.items():
        tensor = (number, is_reduced)
        if size != _UNKNOWN and count[code] > (count[usual[tensor]] if tensor in usual else 0):
            usual[tensor] = code
    return np.array(
        [
            usual.get((number, is_reduced), code) if size == _UNKNOWN else code
            for (number, size, is_reduced), code in codes.items()
        ],
        np.int64,
    )

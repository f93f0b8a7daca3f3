"""Sum the times of every tensor, and collect the allreduces of each step of a timeline."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from stallscope.arrays.types import Bools, Floats, Ints
from stallscope.parsers.formats.horovod_timeline import Activities

from .repetitions import Negotiations, step_positions
from .segment import ActivitySegment, added_us, distinct, is_reductions_negotiation
from .tensor_figures import AllreduceSteps, TensorTimes

# Kinds of sums; from the last on, one kind per name of an activity.
_NEGOTIATED, _OPERATED, _PARTS = 0, 1, 2


class TensorTally:
    """Collects counts and sums by tensor and kind."""

    def __init__(self) -> None:
        self._tables: list[_Sums] = []
        # The activity and the size of each tensor's last operation.
        self._kind: dict[int, int] = {}
        self._size: dict[int, int] = {}

    def add(self, segment: ActivitySegment) -> None:
        negotiated, operations, parts = segment.negotiated, segment.operations, segment.parts
        self._tables += [
            _Sums.of(negotiated, np.full(len(negotiated), _NEGOTIATED)),
            _Sums.of(operations, np.full(len(operations), _OPERATED)),
            _Sums.of(parts, parts.name + _PARTS),
        ]
        self._kind.update(zip(operations.tensor.tolist(), operations.name.tolist(), strict=True))
        sized = operations.only(operations.size >= 0)
        self._size.update(zip(sized.tensor.tolist(), sized.size.tolist(), strict=True))
        # Joining only when the tables have doubled costs little and limits memory.
        if sum(map(len, self._tables[1:])) > len(self._tables[0]):
            self._tables = [_Sums.joined(self._tables)]

    def times(
        self, names: Mapping[int, str], activities: Sequence[str], unions: Mapping[str, int]
    ) -> tuple[tuple[TensorTimes, ...], tuple[str, ...]]:
        """Return the tensors, the busiest first, and the names of parts, the longest first."""
        whole = _Sums.joined(self._tables)
        parts = tuple(sorted(unions, key=lambda name: (-unions[name], name)))
        # In a damaged timeline a tensor may have parts only.
        keys = np.unique(whole.tensor[whole.kind < _PARTS])
        waits, waited = whole.of_kind(keys, _NEGOTIATED)
        runs, took = whole.of_kind(keys, _OPERATED)
        in_parts = {name: whole.of_kind(keys, activities.index(name) + _PARTS)[1] for name in parts}
        tensors = [
            TensorTimes(
                name=names.get(key, f"tensor {key}"),
                operation=activities[self._kind[key]] if key in self._kind else "",
                size=self._size.get(key),
                operations=int(runs[at]),
                negotiation_ms=float(waited[at] / waits[at] / 1e3) if waits[at] else None,
                operation_ms=float(took[at] / runs[at] / 1e3) if runs[at] else None,
                parts_ms={
                    name: float(sums[at] / runs[at] / 1e3)
                    for name, sums in in_parts.items()
                    if runs[at] and sums[at]
                },
                busy_ms=float(took[at] / 1e3),
            )
            for at, key in enumerate(keys.tolist())
        ]
        return tuple(sorted(tensors, key=lambda tensor: (-tensor.busy_ms, tensor.name))), parts


class _Sums:
    """Counts and sums, one row for each tensor and kind, ascending."""

    def __init__(self, tensor: Ints, kind: Ints, count: Ints, took: Floats) -> None:
        key, index = _keys(tensor, kind)
        self.tensor, self.kind = key >> _KIND_BITS, key & ((1 << _KIND_BITS) - 1)
        self.count = _summed(index, count, len(key)).astype(np.int64)
        self.took = _summed(index, took, len(key))

    def __len__(self) -> int:
        return len(self.tensor)

    @classmethod
    def of(cls, rows: Activities, kind: Ints) -> _Sums:
        took = (rows.end - rows.begin).astype(np.float64)
        return cls(rows.tensor, kind, np.ones(len(rows), np.int64), took)

    @classmethod
    def joined(cls, tables: Sequence[_Sums]) -> _Sums:
        names = ("tensor", "kind", "count", "took")
        return cls(*(np.concatenate([getattr(table, name) for table in tables]) for name in names))

    def of_kind(self, keys: Ints, kind: int) -> tuple[Ints, Floats]:
        """Return counts and microseconds of one kind, by tensor."""
        rows = np.flatnonzero((self.kind == kind) & np.isin(self.tensor, keys))
        at = np.searchsorted(keys, self.tensor[rows])
        counts, sums = np.zeros(len(keys), np.int64), np.zeros(len(keys))
        counts[at], sums[at] = self.count[rows], self.took[rows]
        return counts, sums


_KIND_BITS = 20


def _keys(tensor: Ints, kind: Ints) -> tuple[Ints, Ints]:
    """Return the distinct pairs as keys, ascending, and the index of each row's key."""
    kinds = int(kind.max(initial=0)) + 1
    pairs, index = distinct(tensor * kinds + kind)
    return pairs // kinds << _KIND_BITS | pairs % kinds, index


def _summed(index: Ints, values: npt.NDArray[np.generic], length: int) -> Floats:
    return np.bincount(index, values, minlength=length).astype(np.float64)


# -- Measure how much of a timeline's time its activities cover -----------------------------------


class UnionTally:
    """Collects unions of intervals, microseconds; keeps only the ends of earlier segments."""

    def __init__(self) -> None:
        self._reached: dict[str, int] = {}
        self._sums: dict[str, int] = defaultdict(int)
        self._first: int | None = None
        self._last = 0

    def add(self, segment: ActivitySegment) -> None:
        rows = segment.rows
        if not len(rows):
            return
        first, last = int(rows.begin[0]), int(rows.end.max())
        self._first = first if self._first is None else min(self._first, first)
        self._last = max(self._last, last)
        self._cover("negotiating", segment.negotiated.begin, segment.negotiated.end)
        self._cover("operating", segment.operations.begin, segment.operations.end)
        parts = segment.parts
        for code in np.flatnonzero(np.bincount(parts.name)).tolist():
            chosen = parts.name == code
            self._cover(f"part {segment.names[code]}", parts.begin[chosen], parts.end[chosen])

    @property
    def span(self) -> int:
        """Return the microseconds from the first activity to the last one."""
        return 0 if self._first is None else self._last - self._first

    @property
    def negotiating(self) -> int:
        """Return the microseconds in which any tensor was negotiated."""
        return self._sums["negotiating"]

    @property
    def operating(self) -> int:
        """Return the microseconds in which any operation ran."""
        return self._sums["operating"]

    @property
    def by_name(self) -> dict[str, int]:
        """Return the microseconds of the parts of operations, by name."""
        return {
            name.removeprefix("part "): took
            for name, took in self._sums.items()
            if name.startswith("part ")
        }

    def _cover(self, what: str, begin: Ints, end: Ints) -> None:
        if not len(begin):
            return
        reached = self._reached.get(what, int(begin[0]))
        begin, end = np.maximum(begin, reached), np.maximum(end, reached)
        self._sums[what] += int(added_us(begin, end).sum())
        self._reached[what] = int(end.max())


# -- The allreduces of each step --------------------------------------------------------------------

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

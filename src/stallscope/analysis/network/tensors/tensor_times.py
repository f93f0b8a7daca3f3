"""Sum the times of every tensor's negotiations, operations and their parts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from stallscope.arrays.types import Floats, Ints
from stallscope.parsers.formats.horovod_timeline import Activities

from .segment import ActivitySegment, added_us, distinct
from .tensor_figures import TensorTimes

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

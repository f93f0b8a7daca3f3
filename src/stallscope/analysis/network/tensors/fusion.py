"""Find the tensors that were reduced together, and the times of each reduction."""

from __future__ import annotations

import numpy as np

from stallscope.arrays.types import Floats, Ints

from .figures import Fusion
from .segment import ActivitySegment, added_us, latest_before


class FusionTally:
    """Collects the reductions of a timeline, one entry for all tensors fused into one."""

    def __init__(self) -> None:
        self._fusions: list[Fusion] = []

    def add(self, segment: ActivitySegment) -> None:
        if len(segment.allreduces):
            self._fusions.append(_fusion(segment))

    def fusion(self) -> Fusion:
        nothing = Fusion(np.zeros(0, np.int64), *([np.zeros(0)] * 5))
        parts = [vars(part) for part in (nothing, *self._fusions)]
        return Fusion(**{name: np.concatenate([part[name] for part in parts]) for name in parts[0]})


def _fusion(segment: ActivitySegment) -> Fusion:
    operations = segment.allreduces
    parts, mine = segment.allreduce_parts
    group = segment.reductions
    count = int(group[-1]) + 1
    reduction = group[mine]
    kinds = segment.kinds(parts)
    transfers = kinds["transfer"]
    first, last = np.full(count, np.inf), np.full(count, -np.inf)
    # Parts are sorted by their start: the first one of each reduction is assigned last.
    first[reduction[transfers][::-1]] = parts.begin[transfers][::-1]
    np.maximum.at(last, reduction[transfers], parts.end[transfers])
    took = [
        _covered(parts.begin[kinds[kind]], parts.end[kinds[kind]], reduction[kinds[kind]], count)
        for kind in ("wait", "copy")
    ]
    return Fusion(
        np.bincount(group).astype(np.int64),
        np.bincount(group, np.where(operations.size < 0, np.nan, operations.size)).astype(float),
        np.where(np.isfinite(first), last - first, np.nan) / 1e3,
        _negotiated(segment, group, count),
        *took,
    )


def _negotiated(segment: ActivitySegment, group: Ints, count: int) -> Floats:
    """Return the milliseconds in which each reduction's tensors were negotiated; NaN if unknown."""
    negotiated, operations = segment.negotiated_allreduces, segment.allreduces
    latest = latest_before(negotiated, operations.tensor, operations.begin)
    known = latest >= 0
    rows, reduction = negotiated.take(latest[known]), group[known]
    order = np.argsort(rows.begin, kind="stable")
    took = _covered(rows.begin[order], rows.end[order], reduction[order], count)
    took[np.bincount(reduction, minlength=count) == 0] = np.nan
    return took


def _covered(begin: Ints, end: Ints, group: Ints, count: int) -> Floats:
    added = added_us(begin, end, group)
    return np.bincount(group, added, minlength=count).astype(np.float64) / 1e3

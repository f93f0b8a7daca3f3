"""What a Horovod Timeline says of tensors: negotiation, fusion, bandwidth, and who came late.

Tensors that are fused go through the same operation, and the timeline repeats it for each of them: times
of several tensors are unions of intervals, never sums. Fused are those whose operations begin one after
the other before the first of them does anything.

Who was late is known only where ranks were ticked: with the response cache, that is the first
negotiation of each tensor. Ticks are taken where the coordinator reads what the ranks have sent, once in
a cycle and in the order of ranks: what is closer together than a cycle came together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from stallscope.parsers.horovod_timeline import Timeline

from .communication import bus_bytes
from .stats import Floats

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_NEGOTIATION = "NEGOTIATE_"
_ALLREDUCE = "ALLREDUCE"
# Parts in which data go between ranks; the others copy and wait.
_TRANSFERS = ("NCCL_", "MPI_", "GLOO_", "CCL_", "DDL_")
_NEVER = np.iinfo(np.int64).max
# Horovod's own cycle time, where cycles were not marked.
_CYCLE_US = 1000.0
# Upper ends of the sizes of operations that are told apart.
SIZES = (1e3, 1e4, 1e5, 1e6, 1e7, 1e8, np.inf)


@dataclass(frozen=True)
class TensorTimes:
    """One tensor. Means are None where there was none."""

    name: str
    #: ``ALLREDUCE``, ``BROADCAST``; empty where it was only negotiated.
    operation: str
    #: Bytes that it put out last; None where no operation told them.
    size: int | None
    operations: int
    negotiation_ms: float | None
    operation_ms: float | None
    #: Mean milliseconds per operation that its parts took, by the names of activities.
    parts_ms: Mapping[str, float]
    #: Milliseconds of all its operations, which it may share with others.
    busy_ms: float


@dataclass(frozen=True)
class Fusion:
    """The allreduces, one entry for all tensors that were fused into it."""

    tensors: Ints
    #: NaN where a tensor's size is not told.
    bytes: Floats
    #: Milliseconds of the reduction itself, without copies; NaN where it is not told apart.
    transfer_ms: Floats


@dataclass(frozen=True)
class SizeClass:
    """Allreduces of one size. None where nothing tells how long the reduction itself took.

    Bandwidths are GB/s of bus bandwidth, as nccl-tests defines it.
    """

    up_to: float
    operations: int
    bytes: float
    #: Medians, and the quartiles of the bandwidth.
    transfer_ms: float | None
    bandwidth: float | None
    quartiles: tuple[float, float] | None


@dataclass(frozen=True)
class LateRank:
    """How often a rank came last, more than a cycle after the first, and how far behind it then was."""

    rank: int
    last: int
    behind_ms: float | None


@dataclass(frozen=True)
class Lateness:
    """Who came last in the rounds of negotiation in which every rank was ticked."""

    rounds: int
    #: Rounds in which all ranks came within a cycle.
    together: int
    cycle_ms: float
    ranks: tuple[LateRank, ...]


@dataclass(frozen=True)
class Cycles:
    """Cycles of Horovod's thread, where they were marked."""

    count: int
    median_ms: float
    p95_ms: float


@dataclass(frozen=True)
class Tensors:
    """All that a timeline says of its tensors."""

    #: The busiest first.
    tensors: tuple[TensorTimes, ...]
    #: Names of parts of operations, those that take longest first.
    parts: tuple[str, ...]
    #: Milliseconds from the first activity to the last one.
    span_ms: float
    #: Shares of the span in which anything was negotiated, and in which any operation ran.
    negotiating: float
    operating: float
    fusion: Fusion
    cycles: Cycles | None
    #: None without ticks.
    lateness: Lateness | None
    #: Negotiations, and those among them with a tick of more than one rank.
    negotiations: int
    ticked: int


def tensors(timeline: Timeline) -> Tensors:
    """What a timeline says of its tensors."""
    rows = _Rows.of(timeline.activities)
    negotiated = rows.only((rows.level == 0) & rows.negotiation)
    operations = rows.only((rows.level == 0) & ~rows.negotiation)
    parts = rows.only((rows.level == 1) & ~rows.negotiation)
    span = float(rows.end.max() - rows.begin.min()) if len(rows.begin) else 0.0
    part_names = _longest_first(parts)
    cycles = _cycles(timeline.cycles_us)
    ticks = _Ticks.of(timeline.ticks)
    return Tensors(
        tensors=_tensors(timeline.tensors, negotiated, operations, parts, part_names),
        parts=part_names,
        span_ms=span / 1e3,
        negotiating=union_us(negotiated.begin, negotiated.end) / span if span else 0.0,
        operating=union_us(operations.begin, operations.end) / span if span else 0.0,
        fusion=_fusion(operations, parts),
        cycles=cycles,
        lateness=_lateness(negotiated, ticks, cycles),
        negotiations=len(negotiated.begin),
        ticked=_ticked(negotiated, ticks),
    )


def union_us(begin: Ints, end: Ints) -> int:
    """The time that intervals cover together."""
    first, until = _stretches(begin, end)
    return int((until - first).sum())


def by_size(fusion: Fusion, ranks: int) -> tuple[SizeClass, ...]:
    """Allreduces and their bus bandwidth by size, as far as sizes are told; the smallest first."""
    told = fusion.bytes > 0
    size, took = fusion.bytes[told], fusion.transfer_ms[told]
    group = np.searchsorted(SIZES, size)
    return tuple(
        _size_class(SIZES[one], size[group == one], took[group == one], ranks)
        for one in np.unique(group).tolist()
    )


def _size_class(up_to: float, size: Floats, took: Floats, ranks: int) -> SizeClass:
    known = took > 0
    median = float(np.median(took[known])) if known.any() else None
    rate = bus_bytes(ranks, 1) * size[known] / took[known] / 1e6
    bandwidth, quartiles = None, None
    if ranks > 1 and known.any():
        low, middle, high = np.percentile(rate, [25, 50, 75]).tolist()
        bandwidth, quartiles = middle, (low, high)
    return SizeClass(up_to, len(size), float(size.sum()), median, bandwidth, quartiles)


@dataclass(frozen=True)
class _Rows:
    """Activities as arrays."""

    tensor: Ints
    name: Ints
    level: Ints
    begin: Ints
    end: Ints
    #: -1 where not told.
    size: Ints
    names: tuple[str, ...]

    @classmethod
    def of(cls, activities: pa.Table) -> _Rows:
        columns = activities.combine_chunks()
        coded = columns["activity"].unify_dictionaries()
        names = tuple(coded.chunk(0).dictionary.to_pylist()) if coded.num_chunks else ()
        codes = [chunk.indices.to_numpy() for chunk in coded.chunks]
        every = cls(
            tensor=columns["tensor"].to_numpy().astype(np.int64),
            name=np.concatenate([*codes, np.zeros(0, np.int32)]).astype(np.int64),
            level=columns["level"].to_numpy().astype(np.int64),
            begin=columns["begin_us"].to_numpy(),
            end=columns["end_us"].to_numpy(),
            size=columns["bytes"].fill_null(-1).to_numpy(),
            names=names,
        )
        # A damaged time may lie before its begin.
        return every.only(every.end >= every.begin)

    def only(self, chosen: Bools) -> _Rows:
        return self.at(np.flatnonzero(chosen))

    def at(self, chosen: Ints) -> _Rows:
        """Those at these places, in this order."""
        return _Rows(
            self.tensor[chosen],
            self.name[chosen],
            self.level[chosen],
            self.begin[chosen],
            self.end[chosen],
            self.size[chosen],
            self.names,
        )

    @property
    def negotiation(self) -> Bools:
        return self.named(lambda name: name.startswith(_NEGOTIATION))

    def named(self, chosen: Callable[[str], bool]) -> Bools:
        """Activities whose names are chosen."""
        return np.array([chosen(name) for name in self.names], bool)[self.name]


@dataclass(frozen=True)
class _Ticks:
    tensor: Ints
    rank: Ints
    at: Ints

    @classmethod
    def of(cls, table: pa.Table) -> _Ticks:
        return cls(
            table["tensor"].to_numpy().astype(np.int64),
            table["rank"].to_numpy().astype(np.int64),
            table["at_us"].to_numpy(),
        )


def _stretches(begin: Ints, end: Ints) -> tuple[Ints, Ints]:
    """The stretches of time that intervals cover together, in order."""
    if not len(begin):
        return begin, end
    order = np.argsort(begin, kind="stable")
    first, reached = begin[order], np.maximum.accumulate(end[order])
    fresh = np.append(True, first[1:] > reached[:-1])
    return first[fresh], reached[np.append(fresh[1:], True)]


def _longest_first(parts: _Rows) -> tuple[str, ...]:
    lengths = {
        name: union_us(parts.begin[parts.name == code], parts.end[parts.name == code])
        for code, name in enumerate(parts.names)
        if (parts.name == code).any()
    }
    return tuple(sorted(lengths, key=lambda name: (-lengths[name], name)))


def _tensors(
    names: Mapping[int, str],
    negotiated: _Rows,
    operations: _Rows,
    parts: _Rows,
    part_names: tuple[str, ...],
) -> tuple[TensorTimes, ...]:
    keys = np.unique(np.concatenate([negotiated.tensor, operations.tensor]))
    waits, waited = _per_key(keys, negotiated)
    runs, took = _per_key(keys, operations)
    in_parts = {}
    for name in part_names:
        _, in_parts[name] = _per_key(keys, parts.only(parts.named(name.__eq__)))
    size, kind = _latest(keys, operations)
    found = [
        TensorTimes(
            name=names.get(key, f"tensor {key}"),
            operation=operations.names[kind[at]] if kind[at] >= 0 else "",
            size=int(size[at]) if size[at] >= 0 else None,
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
    return tuple(sorted(found, key=lambda one: (-one.busy_ms, one.name)))


def _per_key(keys: Ints, rows: _Rows) -> tuple[Ints, Floats]:
    """How many activities each tensor has, and how many microseconds they take."""
    # A damaged timeline may have parts of tensors that have nothing else.
    rows = rows.only(np.isin(rows.tensor, keys))
    at = np.searchsorted(keys, rows.tensor)
    counts = np.bincount(at, minlength=len(keys)).astype(np.int64)
    sums = np.bincount(at, (rows.end - rows.begin).astype(np.float64), minlength=len(keys))
    return counts, sums.astype(np.float64)


def _latest(keys: Ints, operations: _Rows) -> tuple[Ints, Ints]:
    """Size and kind of each tensor's last operation of which they are known; -1 where of none."""
    size, kind = np.full(len(keys), -1), np.full(len(keys), -1)
    at = np.searchsorted(keys, operations.tensor)
    kind[at] = operations.name
    told = operations.size >= 0
    size[at[told]] = operations.size[told]
    return size, kind


def _fusion(operations: _Rows, parts: _Rows) -> Fusion:
    allreduces = operations.only(operations.named(_ALLREDUCE.__eq__))
    allreduces = allreduces.at(np.lexsort((allreduces.tensor, allreduces.begin)))
    if not len(allreduces.begin):
        return Fusion(np.zeros(0, np.int64), np.zeros(0), np.zeros(0))
    mine = _operation_of(allreduces, parts)
    parts, mine = parts.only(mine >= 0), mine[mine >= 0]
    # When each operation does something first, or is over.
    acts = allreduces.end.copy()
    np.minimum.at(acts, mine, parts.begin)
    fresh = np.append(True, acts[:-1] < allreduces.begin[1:])
    group = np.cumsum(fresh) - 1
    sizes = np.where(allreduces.size < 0, np.nan, allreduces.size)
    transfers = parts.named(lambda name: name.startswith(_TRANSFERS))
    own = group[mine[transfers]]
    first = np.full(group[-1] + 1, np.inf)
    last = np.full(group[-1] + 1, -np.inf)
    np.minimum.at(first, own, parts.begin[transfers])
    np.maximum.at(last, own, parts.end[transfers])
    return Fusion(
        np.bincount(group).astype(np.int64),
        np.bincount(group, sizes).astype(np.float64),
        np.where(np.isfinite(first), last - first, np.nan) / 1e3,
    )


def _operation_of(operations: _Rows, parts: _Rows) -> Ints:
    """Per part, the operation of its tensor that it lies within; -1 where none is there."""
    n, m = len(operations.begin), len(parts.begin)
    if not m:
        return np.zeros(0, np.int64)
    is_part = np.arange(n + m) >= n
    tensor = np.concatenate([operations.tensor, parts.tensor])
    order = np.lexsort((is_part, np.concatenate([operations.begin, parts.begin]), tensor))
    # Where the latest operation before each place stands in that order.
    before = np.maximum.accumulate(np.where(is_part[order], -1, np.arange(n + m)))
    found = np.full(n + m, -1)
    found[order] = np.where(before >= 0, order[before], -1)
    mine = found[n:]
    fits = (operations.tensor[mine] == parts.tensor) & (parts.end <= operations.end[mine])
    return np.where((mine >= 0) & fits, mine, -1)


def _cycles(begins: Ints) -> Cycles | None:
    if len(begins) < 2:
        return None
    took = np.diff(np.sort(begins)) / 1e3
    return Cycles(len(begins), float(np.median(took)), float(np.percentile(took, 95)))


def _ticked(negotiated: _Rows, ticks: _Ticks) -> int:
    """Negotiations during which more than one rank was ticked."""
    if not len(ticks.at) or not len(negotiated.begin):
        return 0
    n, m = len(negotiated.begin), len(ticks.at)
    moments = _Rows(ticks.tensor, ticks.rank, ticks.rank, ticks.at, ticks.at, ticks.rank, ())
    mine = _operation_of(negotiated, moments)
    assert len(mine) == m
    pairs = np.unique(np.stack([mine, ticks.rank])[:, mine >= 0], axis=1)
    return int(np.count_nonzero(np.bincount(pairs[0], minlength=n) > 1))


def _lateness(negotiated: _Rows, ticks: _Ticks, cycles: Cycles | None) -> Lateness | None:
    """Who came last. Negotiations that overlap are one round: fused tensors would count many times."""
    if not len(negotiated.begin):
        return None
    first, until = _stretches(negotiated.begin, negotiated.end)
    at = np.searchsorted(first, ticks.at, "right") - 1
    inside = (at >= 0) & (ticks.at <= until[at])
    ranks, rank = np.unique(ticks.rank[inside], return_inverse=True)
    if len(ranks) < 2:
        return None
    came = np.full((len(first), len(ranks)), -1)
    np.maximum.at(came, (at[inside], rank), ticks.at[inside])
    came = came[(came >= 0).all(axis=1)]
    cycle_us = _CYCLE_US if cycles is None else 1e3 * cycles.median_ms
    behind = came.max(axis=1, initial=0) - came.min(axis=1, initial=_NEVER)
    apart = behind > cycle_us
    last = came.argmax(axis=1)
    found = [
        LateRank(
            int(number),
            int(np.count_nonzero(mine)),
            float(behind[mine].mean()) / 1e3 if mine.any() else None,
        )
        for index, number in enumerate(ranks.tolist())
        for mine in (apart & (last == index),)
    ]
    found.sort(key=lambda one: (-one.last, one.rank))
    together = int(np.count_nonzero(~apart))
    return Lateness(len(came), together, cycle_us / 1e3, tuple(found)) if len(came) else None

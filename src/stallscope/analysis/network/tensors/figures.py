"""Figures of a timeline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from stallscope.arrays.types import Floats, Ints

from ..communication import bus_bytes

# Upper ends of the sizes of operations that are distinguished.
SIZES = (1e3, 1e4, 1e5, 1e6, 1e7, 1e8, np.inf)


@dataclass(frozen=True)
class TensorTimes:
    """One tensor. Means are None where there was none."""

    name: str
    #: ``ALLREDUCE``, ``BROADCAST``; empty where it was only negotiated.
    operation: str
    #: Bytes that it put out last; None if no operation recorded them.
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
    #: NaN if a tensor's size is unknown.
    bytes: Floats
    #: Milliseconds of the reduction itself, without copies; NaN where it is not distinguished.
    transfer_ms: Floats
    #: Milliseconds in which any of its tensors was negotiated, waited for data, and was copied.
    negotiation_ms: Floats
    wait_ms: Floats
    copy_ms: Floats


@dataclass(frozen=True)
class AllreduceSteps:
    """The allreduces of every step, one entry for each.

    Times are milliseconds in which any tensor was at it: they overlap, and do not add up to the step.
    """

    #: Microseconds of the timeline at which the step's first tensor was negotiated.
    begin_us: Ints
    #: Until the next step begins; NaN for the last one.
    step_ms: Floats
    negotiation_ms: Floats
    #: Of the operations: all of them together, and what they consist of.
    operation_ms: Floats
    wait_ms: Floats
    copy_ms: Floats
    transfer_ms: Floats
    #: Tensors that were reduced, and reductions they went through.
    tensors: Ints
    reductions: Ints

    def __len__(self) -> int:
        return len(self.begin_us)


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
    """All figures of a timeline's tensors."""

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
    steps: AllreduceSteps
    cycles: Cycles | None
    #: None without ticks.
    lateness: Lateness | None
    #: Negotiations, and those among them with a tick of more than one rank.
    negotiations: int
    ticked: int

    @property
    def cannot_name(self) -> str:
        """Why it cannot tell who was late, and what could; empty where it tells that of every step."""
        if self.ticked == self.negotiations:
            return ""
        told = (
            "The timeline cannot name the late rank: it does not record when ranks were ready"
            if not self.ticked
            else f"The timeline names the late rank for {self.ticked:,} of {self.negotiations:,} "
            "negotiations only: the response cache answers the others"
        )
        return (
            f"{told}. StepLogger names it at every step; a timeline does with HOROVOD_CACHE_CAPACITY=0, "
            "which makes every step slower."
        )


def by_size(fusion: Fusion, ranks: int) -> tuple[SizeClass, ...]:
    """Allreduces and their bus bandwidth by size, as far as sizes are known; the smallest first."""
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

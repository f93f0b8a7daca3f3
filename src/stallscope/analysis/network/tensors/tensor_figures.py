"""Define the figures of a Horovod Timeline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from stallscope.arrays.types import Floats, Ints
from stallscope.collector.netcheck.sizes import bus_bytes

#: Upper ends of the size classes of operations, bytes.
SIZES = (1e3, 1e4, 1e5, 1e6, 1e7, 1e8, np.inf)


@dataclass(frozen=True)
class TensorTimes:
    """Times of one tensor; means are None without any operation or negotiation."""

    name: str
    #: ``ALLREDUCE``, ``BROADCAST``; empty if the tensor was only negotiated.
    operation: str
    #: Output bytes of the last operation; None if no operation recorded them.
    size: int | None
    operations: int
    negotiation_ms: float | None
    operation_ms: float | None
    #: Mean milliseconds per operation of its parts, by the names of activities.
    parts_ms: Mapping[str, float]
    #: Milliseconds of all operations; fused tensors share them.
    busy_ms: float


@dataclass(frozen=True)
class Fusion:
    """The reductions, one entry for all tensors fused into one."""

    tensors: Ints
    #: NaN if a tensor's size is unknown.
    bytes: Floats
    #: Milliseconds of the transfer itself, without copies; NaN if not recorded.
    transfer_ms: Floats
    #: Milliseconds in which any of the tensors was negotiated, waited for data, or was copied.
    negotiation_ms: Floats
    wait_ms: Floats
    copy_ms: Floats


@dataclass(frozen=True)
class AllreduceSteps:
    """The allreduces of each step, one entry per step; no entries if steps are unknown.

    Times are milliseconds in which any tensor was in that state; they overlap and do not add up to the
    step.
    """

    #: When the step's first tensor was negotiated, microseconds of the timeline.
    start_us: Ints
    #: Time until the next step starts; NaN for the last one of each job in the timeline.
    step_ms: Floats
    negotiation_ms: Floats
    #: Time of all operations, and of their parts.
    operation_ms: Floats
    wait_ms: Floats
    copy_ms: Floats
    transfer_ms: Floats
    #: The numbers of reduced tensors and of reductions.
    tensors: Ints
    reductions: Ints

    def __len__(self) -> int:
        return len(self.start_us)


@dataclass(frozen=True)
class SizeClass:
    """Allreduces of one size class; None if the time of the transfer itself is unknown.

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
    """How often a rank was last, more than a cycle after the first, and its mean delay then."""

    rank: int
    last: int
    delay_ms: float | None


@dataclass(frozen=True)
class Lateness:
    """The last ranks in the rounds of negotiation in which every rank was ticked."""

    rounds: int
    #: Rounds in which all ranks were ready within a cycle.
    together: int
    cycle_ms: float
    ranks: tuple[LateRank, ...]


@dataclass(frozen=True)
class Cycles:
    """Marked cycles of Horovod's background thread."""

    count: int
    median_ms: float
    p95_ms: float


@dataclass(frozen=True)
class Tensors:
    """All figures of a timeline's tensors."""

    #: Sorted by busy time, the busiest first.
    tensors: tuple[TensorTimes, ...]
    #: Names of the parts of operations, the longest first.
    parts: tuple[str, ...]
    #: Milliseconds from the first activity to the last one.
    span_ms: float
    #: Shares of the span in which any tensor was negotiated, and in which any operation ran.
    negotiating: float
    operating: float
    fusion: Fusion
    steps: AllreduceSteps
    #: Why steps are unknown; empty if they are known.
    no_steps: str
    cycles: Cycles | None
    #: None without ticks.
    lateness: Lateness | None
    #: The number of negotiations, and of those with ticks of more than one rank.
    negotiations: int
    ticked: int

    @property
    def cannot_name(self) -> str:
        """Return why late ranks are unknown and how to record them; empty if they are always known."""
        if self.ticked == self.negotiations:
            return ""
        reason = (
            "The timeline cannot name the late rank: it does not record when ranks were ready"
            if not self.ticked
            else f"The timeline names the late rank for {self.ticked:,} of {self.negotiations:,} "
            "negotiations only: the response cache answers the others"
        )
        return (
            f"{reason}. StepLogger names it in every step. So does a timeline with "
            "HOROVOD_CACHE_CAPACITY=0, which makes every step slower."
        )


def by_size(fusion: Fusion, ranks: int) -> tuple[SizeClass, ...]:
    """Group allreduces of known size into size classes with their bandwidth, the smallest first."""
    known = fusion.bytes > 0
    size, took = fusion.bytes[known], fusion.transfer_ms[known]
    group = np.searchsorted(SIZES, size)
    return tuple(
        _size_class(SIZES[index], size[group == index], took[group == index], ranks)
        for index in np.unique(group).tolist()
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

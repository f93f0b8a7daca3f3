"""Clocks of hosts with offsets, drifts, slews and jumps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .draws import Ints, whole_microseconds


@dataclass(frozen=True)
class Slew:
    """A host's clock runs fast by ``ppm`` from the start of one step to the end of another."""

    host: int
    first_step: int
    last_step: int
    ppm: float


@dataclass(frozen=True)
class Jump:
    """A host's clock is set forward in the middle of a step's compute, on the host's first rank."""

    host: int
    step: int
    ms: float


@dataclass(frozen=True)
class Clocks:
    """The differences between the hosts' clocks; host 0 has the true clock."""

    #: The other hosts' offsets are uniform between minus and plus this.
    offset_s: float = 0.0
    #: Standard deviation of the other hosts' drifts.
    drift_ppm: float = 0.0
    slews: Sequence[Slew] = ()
    jumps: Sequence[Jump] = ()
    #: The offset of each host, instead of random ones.
    offsets_ms: Sequence[float] = ()

    def __post_init__(self) -> None:
        if not (self.offset_s >= 0 and self.drift_ppm >= 0):
            raise ValueError("offset_s and drift_ppm of the clocks must be at least 0")
        for slew in self.slews:
            if not 0 <= slew.first_step <= slew.last_step:
                raise ValueError(
                    f"a clock cannot be slewed from step {slew.first_step} to {slew.last_step}"
                )
        for jump in self.jumps:
            if jump.step < 0:
                raise ValueError(f"a clock cannot jump in step {jump.step}")

    @property
    def largest_lag_ms(self) -> float:
        """Return the largest lag of a host's clock relative to host 0's at the start."""
        return max([self.offset_s * 1e3, *(-ms for ms in self.offsets_ms)])

    def draw(self, random: np.random.Generator, hosts: int) -> tuple[Ints, npt.NDArray[np.float64]]:
        """Draw the hosts' offsets in nanoseconds and their drifts in parts per million."""
        offsets = random.uniform(-1, 1, hosts) * self.offset_s * 1e6
        drifts = random.standard_normal(hosts) * self.drift_ppm
        if len(self.offsets_ms):
            offsets = np.asarray(self.offsets_ms, float) * 1e3
        offsets[0] = drifts[0] = 0
        return whole_microseconds(offsets), drifts


@dataclass(frozen=True)
class HostClock:
    """One host's clock relative to true time."""

    offset: int = 0
    drift_ppm: float = 0.0
    #: When drift starts.
    start: int = 0
    #: Slews as start, end and ppm; jumps as time and nanoseconds.
    slews: tuple[tuple[int, int, float], ...] = ()
    jumps: tuple[tuple[int, int], ...] = ()

    @property
    def constant(self) -> bool:
        """Whether the offset never changes."""
        return not (self.drift_ppm or self.slews or self.jumps)

    def ahead(self, at: Ints) -> Ints:
        """Return how far the clock is ahead at these true times, rounded to whole microseconds."""
        if self.constant:
            return np.broadcast_to(np.int64(self.offset), at.shape)
        gained = (at - self.start) * (self.drift_ppm * 1e-6)
        for start, end, ppm in self.slews:
            gained += (at.clip(start, end) - start) * (ppm * 1e-6)
        ahead = whole_microseconds(gained / 1e3) + self.offset
        for jumped_at, ns in self.jumps:
            ahead += np.where(at >= jumped_at, ns, 0)
        return ahead

    def read(self, at: Ints) -> Ints:
        """Return the clock's readings at these true times."""
        return at + self.ahead(at) if self.offset or not self.constant else at

"""Models of the time that a reduction takes once the last rank is ready."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, log2


@dataclass(frozen=True)
class Fixed:
    """A fixed time for any number of ranks."""

    ms: float

    def __post_init__(self) -> None:
        if not self.ms >= 0:
            raise ValueError(f"the communication takes {self.ms} ms; it must be at least 0")

    def transfer_ms(self, ranks: int) -> float:
        """Return the mean exposed time per step; 0 for one rank."""
        return self.ms if ranks > 1 else 0.0

    @property
    def gradient_bytes(self) -> int | None:
        return None


@dataclass(frozen=True)
class _BandwidthModel:
    """A time that depends on latency and bandwidth."""

    #: Bytes of gradients reduced per step.
    bytes: int
    bandwidth_gb_s: float
    latency_us: float = 10.0
    #: The part that backward hides.
    overlap_ms: float = 0.0

    def __post_init__(self) -> None:
        if not (self.bytes >= 0 and self.latency_us >= 0 and self.overlap_ms >= 0):
            raise ValueError(
                "bytes, latency_us and overlap_ms of the communication must be at least 0"
            )
        if not self.bandwidth_gb_s > 0:
            raise ValueError(f"the bandwidth is {self.bandwidth_gb_s} GB/s; it must be above 0")

    @property
    def gradient_bytes(self) -> int | None:
        return self.bytes

    def _exposed_ms(self, hops: float, volume: float) -> float:
        latency = hops * self.latency_us / 1e3
        return max(
            0.0, latency + volume * self.bytes / (self.bandwidth_gb_s * 1e6) - self.overlap_ms
        )


@dataclass(frozen=True)
class Ring(_BandwidthModel):
    """Ring allreduce: reduce-scatter and allgather, N − 1 hops of bytes/N each.

    Patarasuk and Yuan, Bandwidth optimal all-reduce algorithms for clusters of workstations, 2009.
    """

    def transfer_ms(self, ranks: int) -> float:
        """Return the mean exposed time per step."""
        if ranks < 2:
            return 0.0
        return self._exposed_ms(2 * (ranks - 1), 2 * (ranks - 1) / ranks)


@dataclass(frozen=True)
class Tree(_BandwidthModel):
    """Pipelined double binary tree: up and down log2 N levels, every byte sent twice.

    Sanders, Speck and Träff, Two-tree algorithms for full bandwidth broadcast, reduction and scan,
    2009; NCCL uses it since 2.4.
    """

    def transfer_ms(self, ranks: int) -> float:
        """Return the mean exposed time per step."""
        if ranks < 2:
            return 0.0
        return self._exposed_ms(2 * ceil(log2(ranks)), 2.0)


Communication = Fixed | Ring | Tree

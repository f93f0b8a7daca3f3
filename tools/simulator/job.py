"""The description of a simulated job: ranks on hosts, noise, clocks and faults."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from .checks import check
from .clocks import Clocks
from .communication import Communication, Fixed
from .draws import Ints
from .faults import Fault
from .noise import Noise

# Far from any seed in common use.
_BASELINE_SEED = 1_000_003


@dataclass(frozen=True)
class Job:
    """A job; times in milliseconds unless named otherwise, steps counted from 0."""

    ranks: int = 8
    steps: int = 500
    #: Epochs of equal length; the last one may be shorter.
    epochs: int = 1
    ranks_per_host: int = 8
    #: CPU cores that the ranks of a host share. Input, compute and other need one core, and faults that
    #: burn CPU one core per thread. A rank that sleeps, or waits in allreduce, needs none. None: there
    #: are always enough cores.
    cores_per_host: int | None = None
    input_ms: float = 4.0
    #: Batches that a rank's loader prefetches. ``input_ms`` (plus a fault in input) is the time to make
    #: one, and a rank waits only if there is none. 0: the loader makes each batch on demand.
    prefetch: int = 0
    compute_ms: float = 150.0
    other_ms: float = 6.0
    communication: Communication = field(default_factory=lambda: Fixed(20.0))
    noise: Noise = field(default_factory=Noise)
    #: Mean of the exponential delay with which a rank receives a step's reduction.
    jitter_ms: float = 0.05
    #: Uneven rings: in every step the last host completes later than the first, by this share of the
    #: mean transfer; the hosts between them are evenly spread.
    skew: float = 0.0
    clocks: Clocks = field(default_factory=Clocks)
    faults: Sequence[Fault] = ()
    batch_size: int = 32
    #: The factor of samples, and so of compute, of some ranks.
    samples_factor: Mapping[int, float] = field(default_factory=dict)
    #: Added to the compute of the first step.
    tracing_ms: float = 500.0
    #: Work at the end of every epoch, one after the other; all ranks have the gap.
    validation_ms: float = 0.0
    checkpoint_ms: float = 0.0
    epoch_gap_ms: float = 0.0
    #: None: all ranks.
    validation_ranks: Collection[int] | None = None
    checkpoint_ranks: Collection[int] | None = (0,)
    #: Share of the rows that are lost at random.
    lost_rows: float = 0.0
    #: Ranks that left no log.
    lost_ranks: Collection[int] = ()
    #: The number of steps in the log of each rank with a truncated log.
    cut_ranks: Mapping[int, int] = field(default_factory=dict)
    #: Standard deviation of the ranks' constant differences in compute speed, as a fraction.
    rank_spread: float = 0.0
    synthetic: bool = False
    #: Whether the timestamps within a step could be placed.
    stamps: bool = True
    run_id: str = "run-a"
    run_name: str | None = None
    generation: int = 0
    #: The number of the first step in the logs.
    first_step: int = 0
    seed: int = 1
    #: Additional facts of every log; they override those that the simulation sets.
    facts: Mapping[str, Any] = field(default_factory=dict)
    #: Names of the hosts in order; None: host-0, host-1, …
    host_names: Sequence[str] | None = None

    def __post_init__(self) -> None:
        check(self)

    @property
    def hosts(self) -> tuple[str, ...]:
        """Return the hosts' names; numbers are padded so that names sort in the order of hosts."""
        if self.host_names is not None:
            return tuple(self.host_names)
        width = len(str(self.host_count - 1))
        return tuple(f"host-{host:0{width}d}" for host in range(self.host_count))

    @property
    def host_count(self) -> int:
        return -(-self.ranks // self.ranks_per_host)

    @property
    def host_index(self) -> Ints:
        """Return the position of each rank's host."""
        return np.arange(self.ranks) // self.ranks_per_host

    @property
    def steps_per_epoch(self) -> int:
        return max(1, -(-self.steps // self.epochs))

    @property
    def transfer_ms(self) -> float:
        """Return the mean time from the last rank's ready to the first rank's reduced."""
        return self.communication.transfer_ms(self.ranks)

    def affected(self, fault: Fault) -> Ints:
        """Return the ranks that a fault affects."""
        if not len(fault.ranks) and not len(fault.hosts):
            return np.arange(self.ranks)
        named = [self.hosts.index(name) for name in fault.hosts]
        of_hosts = np.flatnonzero(np.isin(self.host_index, named))
        return np.union1d(np.asarray(fault.ranks, np.int64), of_hosts)

    def healthy(self) -> Job:
        """Return the job without its faults, with the same random numbers."""
        return replace(self, faults=())

    def baseline(
        self, ranks: int | None = None, input_ms: float = 1.0, seed: int | None = None
    ) -> Job:
        """Return a healthy job of the same model on synthetic data, with complete logs.

        Args:
            ranks: the number of ranks, if not as many as this job.
            input_ms: the time of input without a loader.
            seed: the seed of its random numbers.
        """
        ranks = self.ranks if ranks is None else ranks
        hosts = -(-ranks // self.ranks_per_host)
        names, offsets = self.host_names, self.clocks.offsets_ms
        clocks = replace(
            self.clocks,
            slews=[slew for slew in self.clocks.slews if slew.host < hosts],
            jumps=[jump for jump in self.clocks.jumps if jump.host < hosts],
            offsets_ms=offsets[:hosts] if hosts <= len(offsets) else (),
        )
        return replace(
            self,
            ranks=ranks,
            input_ms=input_ms,
            faults=(),
            clocks=clocks,
            samples_factor={r: f for r, f in self.samples_factor.items() if r < ranks},
            validation_ranks=_below(self.validation_ranks, ranks),
            checkpoint_ranks=_below(self.checkpoint_ranks, ranks),
            lost_rows=0.0,
            lost_ranks=(),
            cut_ranks={},
            synthetic=True,
            run_id=f"{self.run_id}-baseline",
            run_name=f"{self.run_name} (synthetic)" if self.run_name else None,
            seed=self.seed + _BASELINE_SEED if seed is None else seed,
            host_names=names[:hosts] if names and hosts <= len(names) else None,
        )


def _below(ranks: Collection[int] | None, limit: int) -> Collection[int] | None:
    return None if ranks is None else [rank for rank in ranks if rank < limit]

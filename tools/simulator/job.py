"""What is simulated: a job of ranks on hosts, healthy but for its faults."""

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

# Far from any seed that people count with.
_BASELINE_SEED = 1_000_003


@dataclass(frozen=True)
class Job:
    """A job; times in milliseconds unless named otherwise, steps counted from 0."""

    ranks: int = 8
    steps: int = 500
    #: Epochs of equal length; the last one has what is left.
    epochs: int = 1
    ranks_per_host: int = 8
    #: CPU cores that the ranks of a host share: input, compute and other are work for one core, and
    #: faults that burn CPU for as many as they have threads. A rank that sleeps, or waits in allreduce,
    #: needs none. None: cores are never short.
    cores_per_host: int | None = None
    input_ms: float = 4.0
    #: Batches that a rank's loader makes ahead of it: ``input_ms`` (and a fault in input) is what
    #: making one takes, and a rank waits only while there is none. 0: it makes each when asked to.
    prefetch: int = 0
    compute_ms: float = 150.0
    other_ms: float = 6.0
    communication: Communication = field(default_factory=lambda: Fixed(20.0))
    noise: Noise = field(default_factory=Noise)
    #: Mean of an exponential time by which a rank learns late that a step is reduced.
    jitter_ms: float = 0.05
    #: Uneven rings: the last host completes this share of the mean transfer later than the first,
    #: in every step, the hosts between them evenly spread.
    skew: float = 0.0
    clocks: Clocks = field(default_factory=Clocks)
    faults: Sequence[Fault] = ()
    batch_size: int = 32
    #: Ranks that get so many times the samples, and so the compute.
    samples_factor: Mapping[int, float] = field(default_factory=dict)
    #: Added to the compute of the first step.
    tracing_ms: float = 500.0
    #: At the end of every epoch, one after the other; the gap has all ranks.
    validation_ms: float = 0.0
    checkpoint_ms: float = 0.0
    epoch_gap_ms: float = 0.0
    #: None: all ranks.
    validation_ranks: Collection[int] | None = None
    checkpoint_ranks: Collection[int] | None = (0,)
    #: Share of the rows that are lost, at random.
    lost_rows: float = 0.0
    #: Ranks that left no log.
    lost_ranks: Collection[int] = ()
    #: Ranks whose log breaks off, and how many steps it holds.
    cut_ranks: Mapping[int, int] = field(default_factory=dict)
    #: Standard deviation of the ranks' permanent differences in speed of compute, as a fraction.
    rank_spread: float = 0.0
    synthetic: bool = False
    #: Whether the timestamps within a step could be placed.
    stamps: bool = True
    run_id: str = "run-a"
    run_name: str | None = None
    generation: int = 0
    #: The number that the logs give the first step.
    first_step: int = 0
    seed: int = 1
    #: Further facts of every log, or other values of those that the simulation sets.
    facts: Mapping[str, Any] = field(default_factory=dict)
    #: Names of the hosts in order; None: host-0, host-1, …
    host_names: Sequence[str] | None = None

    def __post_init__(self) -> None:
        check(self)

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts' names; numbers are padded so that names sort as the hosts do."""
        if self.host_names is not None:
            return tuple(self.host_names)
        width = len(str(self.host_count - 1))
        return tuple(f"host-{host:0{width}d}" for host in range(self.host_count))

    @property
    def host_count(self) -> int:
        return -(-self.ranks // self.ranks_per_host)

    @property
    def host_index(self) -> Ints:
        """Per rank, the position of its host."""
        return np.arange(self.ranks) // self.ranks_per_host

    @property
    def steps_per_epoch(self) -> int:
        return max(1, -(-self.steps // self.epochs))

    @property
    def transfer_ms(self) -> float:
        """Mean time from the last rank's gradients ready until the first rank has them reduced."""
        return self.communication.transfer_ms(self.ranks)

    def affected(self, fault: Fault) -> Ints:
        """The ranks that a fault is about."""
        if not len(fault.ranks) and not len(fault.hosts):
            return np.arange(self.ranks)
        named = [self.hosts.index(name) for name in fault.hosts]
        of_hosts = np.flatnonzero(np.isin(self.host_index, named))
        return np.union1d(np.asarray(fault.ranks, np.int64), of_hosts)

    def healthy(self) -> Job:
        """The same job without its faults: every random number is the same."""
        return replace(self, faults=())

    def baseline(
        self, ranks: int | None = None, input_ms: float = 1.0, seed: int | None = None
    ) -> Job:
        """A healthy run of the same model on synthetic data, whose logs are whole.

        Args:
            ranks: how many ranks it has, where not as many as this job.
            input_ms: what input takes without a loader.
            seed: of its own random numbers.
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

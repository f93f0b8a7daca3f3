"""What is wrong with a job: who is late, in which stage, and when.

Steps are counted from 0 with the job's first step, whatever number the logs give it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from .draws import Floats, Ints, lognormal, whole_microseconds

STAGES = ("input", "compute", "other")


@dataclass(frozen=True)
class Always:
    """In every step."""

    def weight(self, random: np.random.Generator, ranks: int, in_epoch: Ints) -> Floats:
        return np.ones((1, len(in_epoch)), np.float32)


@dataclass(frozen=True)
class Bursts:
    """In episodes that begin at random on each affected rank, independently of the others'."""

    #: Mean number of steps from the start of one episode to that of the next.
    every: float = 50.0
    #: Steps that an episode lasts; one that begins within another prolongs it.
    length: int = 3

    def __post_init__(self) -> None:
        if not (self.every >= 1 and self.length >= 1):
            raise ValueError("bursts come every 1 or more steps and last 1 or more")

    def weight(self, random: np.random.Generator, ranks: int, in_epoch: Ints) -> Floats:
        begins = random.random((ranks, len(in_epoch)), dtype=np.float32) < 1 / self.every
        begun = np.cumsum(begins, axis=1, dtype=np.int32)
        ended = np.zeros_like(begun)
        ended[:, self.length :] = begun[:, : -self.length]
        return (begun > ended).astype(np.float32)


@dataclass(frozen=True)
class Ramp:
    """From nothing at ``first`` to twice the fault at ``last`` (the last step), and so from then on."""

    first: int = 0
    last: int | None = None

    def __post_init__(self) -> None:
        if self.last is not None and self.last <= self.first:
            raise ValueError(f"a ramp from step {self.first} to {self.last} does not rise")

    def weight(self, random: np.random.Generator, ranks: int, in_epoch: Ints) -> Floats:
        last = len(in_epoch) - 1 if self.last is None else self.last
        risen = (np.arange(len(in_epoch)) - self.first) / max(1, last - self.first)
        return np.asarray((2 * risen.clip(0, 1))[None], np.float32)


@dataclass(frozen=True)
class EveryNth:
    """In every n-th step, counted within the epoch, beginning with ``phase``."""

    n: int
    phase: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.phase < self.n:
            raise ValueError(f"every {self.n}th step has no phase {self.phase}")

    def weight(self, random: np.random.Generator, ranks: int, in_epoch: Ints) -> Floats:
        return np.asarray((in_epoch % self.n == self.phase)[None], np.float32)


@dataclass(frozen=True)
class Between:
    """From step ``first`` to step ``last``, both of them included."""

    first: int
    last: int

    def __post_init__(self) -> None:
        if self.last < self.first:
            raise ValueError(f"there is no step between {self.first} and {self.last}")

    def weight(self, random: np.random.Generator, ranks: int, in_epoch: Ints) -> Floats:
        step = np.arange(len(in_epoch))
        return np.asarray(((step >= self.first) & (step <= self.last))[None], np.float32)


When = Always | Bursts | Ramp | EveryNth | Between


@dataclass(frozen=True)
class Fault:
    """A stage that takes longer than it should, on some ranks or on all."""

    stage: str
    #: What it adds in an affected step, on average.
    ms: float
    #: Ranks that have it, and names of hosts whose ranks all have it; where neither is named, all.
    ranks: Sequence[int] = ()
    hosts: Sequence[str] = ()
    #: Only one of these ranks at a time has it, drawn anew every so many steps. 0: all of them.
    rotating: int = 0
    when: When = field(default_factory=Always)
    #: Coefficient of variation of what it adds, independent in every rank and step.
    cv: float = 0.1
    #: The rank is late for an early bucket of gradients only: its own ``ready`` does not move, the
    #: transfer takes longer. Timestamps around the whole reduction cannot tell that from a slow network.
    bucket: bool = False
    #: Threads that work on CPU cores for as long as it lasts. 0: the rank sleeps meanwhile. It matters
    #: where ranks share cores (``Job.cores_per_host``).
    burns: int = 0

    def __post_init__(self) -> None:
        if self.stage not in STAGES:
            raise ValueError(f"there is no stage {self.stage!r}; there are {', '.join(STAGES)}")
        if not (self.ms >= 0 and self.cv >= 0 and self.rotating >= 0 and self.burns >= 0):
            raise ValueError("ms, cv, rotating and burns of a fault are 0 or more")
        if self.bucket and self.stage != "compute":
            raise ValueError(f"gradients are late in compute, not in {self.stage}")
        if self.bucket and self.burns:
            raise ValueError("a fault that delays an early bucket of gradients burns no CPU")

    def delays(self, random: np.random.Generator, ranks: int, in_epoch: Ints) -> Ints:
        """Nanoseconds that it adds: affected ranks × steps.

        Args:
            random: the fault's own generator.
            ranks: how many ranks are affected.
            in_epoch: per step, its number within its epoch.
        """
        steps = len(in_epoch)
        weight = self.when.weight(random, ranks, in_epoch)
        added = lognormal(random.standard_normal((ranks, steps), dtype=np.float32), self.cv)
        added *= weight
        if self.rotating:
            turns = random.integers(ranks, size=-(-steps // self.rotating))
            whose = np.repeat(turns, self.rotating)[:steps]
            added *= np.arange(ranks)[:, None] == whose
        added *= np.float32(self.ms * 1e3)
        return whole_microseconds(added)

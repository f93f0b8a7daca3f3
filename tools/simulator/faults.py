"""Faults of a job: which ranks are late, in which stage, and when.

Steps are counted from 0 at the job's first step, whatever number it has in the logs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from .draws import Floats, Ints, lognormal, whole_microseconds

STAGES = ("input", "compute", "other")
#: What a fault in compute may be due to, which recorders note: pauses, waits for Python's lock, at which
#: they look now and then, work beside whole steps, and batches of more elements.
WORK, LOCK, BESIDE = "work", "interpreter", ("background_saving", "background_evaluation")
CAUSES = ("", "garbage_collection", "compilation", "saving", LOCK, *BESIDE, WORK)


@dataclass(frozen=True)
class Always:
    """The fault occurs in every step."""

    def weight(self, random: np.random.Generator, ranks: int, in_epoch: Ints) -> Floats:
        return np.ones((1, len(in_epoch)), np.float32)


@dataclass(frozen=True)
class Bursts:
    """The fault occurs in episodes that start at random, independently on each affected rank."""

    #: Mean number of steps between the starts of two episodes.
    every: float = 50.0
    #: Steps that an episode lasts; an episode that starts within another extends it.
    length: int = 3

    def __post_init__(self) -> None:
        if not (self.every >= 1 and self.length >= 1):
            raise ValueError("every and length of bursts must be at least 1 step")

    def weight(self, random: np.random.Generator, ranks: int, in_epoch: Ints) -> Floats:
        starts = random.random((ranks, len(in_epoch)), dtype=np.float32) < 1 / self.every
        started = np.cumsum(starts, axis=1, dtype=np.int32)
        ended = np.zeros_like(started)
        ended[:, self.length :] = started[:, : -self.length]
        return (started > ended).astype(np.float32)


@dataclass(frozen=True)
class Ramp:
    """The fault grows from 0 at ``first`` to twice its size at ``last`` (default: the last step)."""

    first: int = 0
    last: int | None = None

    def __post_init__(self) -> None:
        if self.last is not None and self.last <= self.first:
            raise ValueError(f"a ramp from step {self.first} to {self.last} does not rise")

    def weight(self, random: np.random.Generator, ranks: int, in_epoch: Ints) -> Floats:
        last = len(in_epoch) - 1 if self.last is None else self.last
        progress = (np.arange(len(in_epoch)) - self.first) / max(1, last - self.first)
        return np.asarray((2 * progress.clip(0, 1))[None], np.float32)


@dataclass(frozen=True)
class EveryNth:
    """The fault occurs in every n-th step of an epoch, starting with ``phase``."""

    n: int
    phase: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.phase < self.n:
            raise ValueError(f"every {self.n}th step has no phase {self.phase}")

    def weight(self, random: np.random.Generator, ranks: int, in_epoch: Ints) -> Floats:
        return np.asarray((in_epoch % self.n == self.phase)[None], np.float32)


@dataclass(frozen=True)
class Between:
    """The fault occurs from step ``first`` to step ``last``, both included."""

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
    """A stage that takes longer than normal, on some ranks or on all."""

    stage: str
    #: The mean time that the fault adds in an affected step.
    ms: float
    #: Affected ranks, and hosts with all their ranks; if both are empty, all ranks.
    ranks: Sequence[int] = ()
    hosts: Sequence[str] = ()
    #: Steps after which the fault moves to another of these ranks, at random. 0: all ranks have it.
    rotating: int = 0
    when: When = field(default_factory=Always)
    #: Coefficient of variation of the added time, independent for every rank and step.
    cv: float = 0.1
    #: The rank is late only for an early bucket of gradients: its ``ready`` stays, but the transfer is
    #: longer. Timestamps around the whole reduction cannot distinguish that from a slow network.
    bucket: bool = False
    #: Threads that are busy on CPU cores during the fault. 0: the rank sleeps. This matters if ranks
    #: share cores (``Job.cores_per_host``).
    burns: int = 0
    #: One of CAUSES.
    cause: str = ""

    def __post_init__(self) -> None:
        if self.stage not in STAGES:
            raise ValueError(f"there is no stage {self.stage!r}; there are {', '.join(STAGES)}")
        if not (self.ms >= 0 and self.cv >= 0 and self.rotating >= 0 and self.burns >= 0):
            raise ValueError("ms, cv, rotating and burns of a fault must be at least 0")
        if self.bucket and self.stage != "compute":
            raise ValueError(f"gradients are late in compute, not in {self.stage}")
        if self.cause not in CAUSES or (self.cause and (self.stage != "compute" or self.bucket)):
            raise ValueError(f"a fault in {self.stage} has no cause {self.cause!r}")
        if self.bucket and self.burns:
            raise ValueError("a fault that delays an early bucket of gradients cannot burn CPU")

    def delays(self, random: np.random.Generator, ranks: int, in_epoch: Ints) -> Ints:
        """Draw the nanoseconds that the fault adds, affected ranks × steps.

        Args:
            random: the fault's generator.
            ranks: the number of affected ranks.
            in_epoch: the position of each step in its epoch.
        """
        steps = len(in_epoch)
        weight = self.when.weight(random, ranks, in_epoch)
        added = lognormal(random.standard_normal((ranks, steps), dtype=np.float32), self.cv)
        added *= weight
        if self.rotating:
            chosen = random.integers(ranks, size=-(-steps // self.rotating))
            affected = np.repeat(chosen, self.rotating)[:steps]
            added *= np.arange(ranks)[:, None] == affected
        added *= np.float32(self.ms * 1e3)
        return whole_microseconds(added)

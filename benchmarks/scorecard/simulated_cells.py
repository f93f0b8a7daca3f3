"""A cell of the scorecard's simulated half: a job and its fault, run many times.

Every size is a percentage of the step of the same job without faults, whose imbalance is part of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Literal

from scoring import Injected
from simulator import (
    Always,
    Bursts,
    Fault,
    Job,
    Noise,
    Ramp,
    Simulated,
    simulate,
)

STAGES = ("input", "compute", "other")

Kind = Literal["power", "clean", "pattern", "robustness"]
Who = Literal["one", "all", "rotating", "none", "host", "two"]
When = Always | Bursts | Ramp

# The faulty rank changes from run to run, in steps of a prime that reaches every rank.
_STRIDE = 7919


@dataclass(frozen=True)
class Cell:
    """A job that is simulated many times, each time with another seed."""

    kind: Kind
    name: str
    runs: int
    #: Without faults.
    job: Job
    who: Who = "none"
    stage: str | None = None
    #: Percent of the clean step; of two faults, the first one's.
    percent: float = 0.0
    #: Percent of the clean step, of the second of two faults; None: as much as the first.
    second_percent: float | None = None
    when: When = field(default_factory=Always)
    bucket: bool = False
    #: A rank that gets so many times the samples.
    work: float | None = None
    #: What the cell is about, in a few words.
    about: str = ""

    def at(self, seed: int) -> Job:
        """Return the job of one run."""
        job = replace(self.job, seed=seed, faults=self._faults(seed))
        return (
            job if self.work is None else replace(job, samples_factor={self.rank(seed): self.work})
        )

    def rank(self, seed: int) -> int:
        """Return the faulty rank of one run."""
        return seed * _STRIDE % self.job.ranks

    def host(self, seed: int) -> str:
        return self.job.hosts[self.rank(seed) // self.job.ranks_per_host]

    def second(self, seed: int) -> int:
        """Return the other faulty rank, if there are two."""
        return (self.rank(seed) + 1 + self.job.ranks // 2) % self.job.ranks

    @property
    def clean_ms(self) -> float:
        return clean_step_ms(self.job.ranks, self.job.noise)

    @property
    def fault_ms(self) -> float:
        return self.percent / 100 * self.clean_ms

    @property
    def second_ms(self) -> float:
        percent = self.percent if self.second_percent is None else self.second_percent
        return percent / 100 * self.clean_ms

    def _faults(self, seed: int) -> tuple[Fault, ...]:
        if self.stage is None or not self.percent:
            return ()
        fault = Fault(self.stage, self.fault_ms, when=self.when, bucket=self.bucket)
        if self.who == "rotating":
            return (replace(fault, rotating=1),)
        if self.who == "host":
            return (replace(fault, hosts=(self.host(seed),)),)
        if self.who == "two":
            second_stage = STAGES[(STAGES.index(self.stage) + 1) % len(STAGES)]
            return (
                replace(fault, ranks=(self.rank(seed),)),
                replace(fault, stage=second_stage, ms=self.second_ms, ranks=(self.second(seed),)),
            )
        return (replace(fault, ranks=(self.rank(seed),)),) if self.who == "one" else (fault,)

    def injected(self, simulated: Simulated) -> Injected:
        """Return what was injected into a run, for the kinds of faults that real runs have, too."""
        seed = simulated.job.seed
        extra = simulated.truth.extra[self.stage or "compute"][1:]
        mean = {
            "one": extra[:, self.rank(seed)].mean(),
            "all": extra.mean(),
            "rotating": extra.max(axis=1).mean(),
            "none": 0.0,
        }[self.who]
        return Injected(
            stage=self.stage,
            who=self.who,  # type: ignore[arg-type]
            rank=self.rank(seed) if self.who == "one" else None,
            mean_ms=float(mean) / 1e6,
            step_ms=self.clean_ms,
        )

    @property
    def facts(self) -> dict[str, Any]:
        """Return the facts that distinguish the cell in tables."""
        job = self.job
        return {
            "name": self.name,
            "about": self.about,
            "ranks": job.ranks,
            "steps": job.steps,
            "who": self.who,
            "stage": self.stage,
            "percent": self.percent,
            "cv": job.noise.cv,
            "phi": job.noise.phi,
            "fault_sds": self._fault_sds,
        }

    @property
    def _fault_sds(self) -> float | None:
        """Return the fault as a multiple of the standard deviation of its stage's noise."""
        if self.stage is None:
            return None
        noise_ms = self.job.noise.cv * getattr(self.job, f"{self.stage}_ms")
        return float(self.fault_ms / noise_ms)


@lru_cache
def clean_step_ms(ranks: int, noise: Noise) -> float:
    """Return the mean step of a job without faults: one long run is accurate enough for a size."""
    return simulate(Job(ranks=ranks, steps=1000, noise=noise)).truth.step_ms()

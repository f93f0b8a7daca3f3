"""Simulate and analyse runs with known faults, and record their results and the truth.

A cell is a job and its fault, run many times. Every size is a percentage of the step of the same job
without faults, whose imbalance is part of it. A configuration is a job whose intervals and predicted
gains are compared with the truth: the true step is the job's mean step over many runs, and an interval
is right if it holds that. The true gain of a fix is found by simulating the same job again without the
fixed problem, from the same random numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from scoring import OUTCOMES, Injected, score
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

from stallscope.analysis import ENTRIES, Analysis, analyse
from stallscope.analysis.gains.what_if import WhatIf
from stallscope.analysis.stragglers.lateness import Straggler
from stallscope.words import STAGES, Fix

Kind = Literal["power", "clean", "pattern", "robustness"]
Who = Literal["one", "all", "rotating", "none", "host", "two"]
When = Always | Bursts | Ramp

# The faulty rank changes from run to run, in steps of a prime that reaches every rank.
_STRIDE = 7919


# A verdict is about the fault only if the fault clearly costs more than exposed allreduce.
_CLEARLY = 1.25
# A rank that is last in fewer steps is hardly ever last.
_HARDLY_EVER = 0.02
# The time of input without a loader, in the baseline and in a job whose input is fixed.
_DISPATCH_MS = 1.0

#: The result of one run.
Record = dict[str, Any]


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


# -- the results of a cell's runs ----------------------------------------------------------------


def analysed(job: Job) -> tuple[Simulated, Analysis]:
    """Analyse a job, against a baseline whose input takes as long as the job's own.

    So every excess over the baseline is injected.
    """
    simulated = simulate(job)
    return simulated, analyse(simulated.run, simulate(job.baseline(input_ms=job.input_ms)).run)


def cell_record(cell: Cell, seed: int) -> Record:
    """Return the result of one run."""
    simulated, analysis = analysed(cell.at(seed))
    special = cell.kind == "pattern" or cell.bucket
    scored = (_special if special else _scored)(cell, simulated, analysis)
    return {"seed": seed, **scored, **_errors(simulated, analysis)}


def _scored(cell: Cell, simulated: Simulated, analysis: Analysis) -> Record:
    """Score by the rules of real runs."""
    scored = asdict(score(analysis, cell.injected(simulated), {}))
    recovered = None
    if scored["found_ms"] is not None and scored["injected"]["mean_ms"] > 0:
        recovered = scored["found_ms"] / scored["injected"]["mean_ms"]
    values = {name: scored[name] for name in OUTCOMES}
    guilty = {cell.rank(simulated.job.seed)} if cell.who == "one" else set()
    return {
        **values,
        "innocent_named": bool({*scored["named"]} - guilty),
        "rotating_found": any(straggler.pattern == "rotating" for straggler in analysis.stragglers),
        "recovered": recovered,
        **_cost(cell, simulated, scored["allreduce_ms"]),
    }


def _cost(cell: Cell, simulated: Simulated, allreduce_ms: float | None) -> Record:
    """Return the fault's real cost, and whether it is clear enough that the verdict must name it."""
    if cell.who == "none":
        return {}
    step = simulated.truth.step_ms()
    cost = step - simulate(simulated.job.healthy()).truth.step_ms()
    due = allreduce_ms is not None and cost > _CLEARLY * allreduce_ms
    return {"cost_share": cost / step, "verdict_due": due}


def _special(cell: Cell, simulated: Simulated, analysis: Analysis) -> Record:
    """Score faults that only simulated runs have: patterns, hosts, several ranks, an early bucket."""
    expected = _expected(cell, simulated.job.seed)
    named = {_key(straggler) for straggler in analysis.stragglers}
    parts = {
        "rank_right": {key[1:3] for key in named} == {key[1:3] for key in expected},
        "cause_right": {key[1:] for key in named} == {key[1:] for key in expected},
        "pattern_right": {key[:3] for key in named} == {key[:3] for key in expected},
        "all_right": named == expected,
    }
    return {
        **parts,
        "innocent_named": bool(
            {rank for key in named for rank in key[1]}
            - {rank for key in expected for rank in key[1]}
        ),
        "hidden_right": _hidden_right(cell, simulated, analysis),
        "verdict": analysis.bottleneck.kind,
        "recovered": _share_found(cell, simulated, analysis),
        "found": sorted(map(repr, named)),
    }


def _hidden_right(cell: Cell, simulated: Simulated, analysis: Analysis) -> bool | None:
    """Whether the analysis is right that the second slow rank hides, or does not; None if unknown."""
    second = cell.second(simulated.job.seed)
    named = [straggler for straggler in analysis.stragglers if straggler.ranks == (second,)]
    if cell.who != "two" or not named:
        return None
    last_share = float((simulated.truth.critical[1:] == second).mean())
    return named[0].holds_back == (last_share >= _HARDLY_EVER)


def _key(straggler: Straggler) -> tuple[str, tuple[int, ...], tuple[str, ...], str]:
    return straggler.pattern, straggler.ranks, straggler.hosts, straggler.stage


def _expected(cell: Cell, seed: int) -> set[tuple[str, tuple[int, ...], tuple[str, ...], str]]:
    if cell.bucket:
        # Timestamps around the whole reduction cannot show it: no rank must be named.
        return set()
    job = cell.at(seed)
    pattern = "persistent"
    if not isinstance(cell.when, Always):
        pattern = "ramp" if isinstance(cell.when, Ramp) else "bursts"
    if cell.work is not None:
        return {(pattern, (cell.rank(seed),), (), "compute")}
    return {
        (pattern, tuple(job.affected(fault).tolist()), tuple(fault.hosts), fault.stage)
        for fault in job.faults
    }


def _share_found(cell: Cell, simulated: Simulated, analysis: Analysis) -> float | None:
    """Return the size found as a fraction of the injected size."""
    if cell.bucket:
        entry = analysis.entry("allreduce")
        late = simulated.truth.extra["bucket"][1:].max(axis=1).mean() / 1e6
        return None if entry is None or entry.excess_ms is None else entry.excess_ms / late
    if cell.stage is None:
        return None
    seed = simulated.job.seed
    stragglers = [
        straggler
        for straggler in analysis.stragglers
        if straggler.stage == cell.stage and cell.rank(seed) in straggler.ranks
    ]
    if not stragglers:
        return None
    extra = simulated.truth.extra[cell.stage][1:, cell.rank(seed)] / 1e6
    # Bursts have their full size while they last.
    size = (
        float(extra[extra > 0].mean()) if stragglers[0].pattern == "bursts" else float(extra.mean())
    )
    return stragglers[0].excess_ms.value / size


def _errors(simulated: Simulated, analysis: Analysis) -> Record:
    """Return the error of exposed allreduce, and how often the critical rank is the true one."""
    entry, steady = analysis.entry("allreduce"), analysis.steady
    if entry is None or steady is None:
        return {"allreduce_error_ms": None, "critical_right": None}
    true = simulated.truth.allreduce[steady.steps].mean() / 1e6
    ranks = np.array(steady.ranks)
    return {
        "allreduce_error_ms": entry.ms - float(true),
        "critical_right": float(
            (ranks[steady.critical] == simulated.truth.critical[steady.steps]).mean()
        ),
    }


# -- intervals and predicted gains ---------------------------------------------------------------


@dataclass(frozen=True)
class Configuration:
    """A job whose intervals are compared with the truth many times."""

    name: str
    runs: int
    job: Job
    about: str

    def at(self, seed: int) -> Job:
        return replace(self.job, seed=seed)

    @property
    def facts(self) -> dict[str, Any]:
        noise = self.job.noise
        return {
            "name": self.name,
            "about": self.about,
            "ranks": self.job.ranks,
            "steps": self.job.steps,
            "cv": noise.cv,
            "phi": noise.phi,
        }


def coverage_record(configuration: Configuration, seed: int) -> Record:
    """Return the figures of one run with their intervals, and the truth of the run."""
    at = configuration.at(seed)
    simulated = simulate(at)
    baseline = simulate(at.baseline(input_ms=_DISPATCH_MS)).run
    analysis = analyse(simulated.run, baseline)
    return {
        "seed": seed,
        "found": dict(_figures(analysis)),
        "true": _true(simulated, {gain.fix for gain in _with_truth(analysis)}),
    }


def _figures(analysis: Analysis) -> Iterator[tuple[str, tuple[float, list[float] | None]]]:
    """Return value and interval of every figure."""
    if analysis.step is not None:
        yield "step", (analysis.step.mean, _listed(analysis.step.ci95))
    for entry in analysis.entries:
        yield entry.name, (entry.ms, _listed(entry.ci95_ms))
    for gain in _with_truth(analysis):
        yield f"fix {gain.fix}", (gain.saved_ms.value, _listed(gain.saved_ms.ci95))


def _with_truth(analysis: Analysis) -> list[WhatIf]:
    """Return the gains whose truth can be simulated; that of half the variation cannot."""
    return [gain for gain in analysis.what_if if gain.fix.kind != "variation"]


def _listed(interval: tuple[float, float] | None) -> list[float] | None:
    return None if interval is None else list(interval)


def _true(simulated: Simulated, fixes: set[Fix]) -> dict[str, float]:
    """Return the true figures of this run."""
    means = simulated.truth.ledger_means_ms()
    true = {name: means[name] for name in (*ENTRIES, "step")}
    step = simulated.truth.step_ms()
    for fix in sorted(fixes | {Fix("input"), Fix("other"), Fix("allreduce")}, key=str):
        if fix.kind == "allreduce":
            true[f"fix {fix}"] = means["allreduce"]
        else:
            true[f"fix {fix}"] = step - simulate(_fixed(simulated.job, fix)).truth.step_ms()
    return true


def _fixed(job: Job, fix: Fix) -> Job:
    """Return the job without the problem that a fix removes."""
    if fix.kind == "all":
        return replace(job, faults=(), input_ms=_DISPATCH_MS)
    if fix.kind in STAGES:
        # Slow ranks are fixed separately.
        kept = [fault for fault in job.faults if fault.stage != fix.kind or fault.ranks]
        fixed = replace(job, faults=kept)
        return replace(fixed, input_ms=_DISPATCH_MS) if fix.kind == "input" else fixed
    fixed_ranks = {int(fix.value)} if fix.kind == "rank" else None
    kept = [
        fault
        for fault in job.faults
        if not fault.ranks or (fixed_ranks is not None and fixed_ranks != {*fault.ranks})
    ]
    return replace(job, faults=kept)

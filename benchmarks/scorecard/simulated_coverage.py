"""Record intervals and predicted gains of simulated runs, and the truth.

The true step is the job's mean step over many runs. An interval is right if it holds that. The true
gain of a fix is found by simulating the same job again without the fixed problem, from the same
random numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from simulator import Job, Simulated, simulate

from stallscope.analysis import ENTRIES, Analysis, analyse
from stallscope.analysis.gains.what_if import WhatIf
from stallscope.words import STAGES, Fix

Record = dict[str, Any]

# The time of input without a loader, in the baseline and in a job whose input is fixed.
_DISPATCH_MS = 1.0


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


def record(configuration: Configuration, seed: int) -> Record:
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

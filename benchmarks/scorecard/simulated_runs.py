"""Simulate and analyse one run of a cell, and compare it with the truth."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
from scoring import score
from simulated_cells import Cell
from simulator import Always, Job, Ramp, Simulated, simulate

from stallscope.analysis import Analysis, analyse
from stallscope.analysis.stragglers.lateness import Straggler

Record = dict[str, Any]

_CLEARLY = 1.25
# A rank that is last in fewer steps is hardly ever last.
_HARDLY_EVER = 0.02


def analysed(job: Job) -> tuple[Simulated, Analysis]:
    """Analyse a job, against a baseline whose input takes as long as the job's own.

    So every excess over the baseline is injected.
    """
    simulated = simulate(job)
    return simulated, analyse(simulated.run, simulate(job.baseline(input_ms=job.input_ms)).run)


def record(cell: Cell, seed: int) -> Record:
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
    kept = (
        "named",
        "stage",
        "cause_right",
        "rank_right",
        "verdict",
        "verdict_right",
        "own_log_right",
        "latest_cause_right",
        "latest_rank_right",
    )
    shown = {name: scored[name] for name in kept}
    guilty = {cell.rank(simulated.job.seed)} if cell.who == "one" else set()
    return {
        **shown,
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
    stragglers = {_key(straggler) for straggler in analysis.stragglers}
    parts = {
        "rank_right": {key[1:3] for key in stragglers} == {key[1:3] for key in expected},
        "cause_right": {key[1:] for key in stragglers} == {key[1:] for key in expected},
        "pattern_right": {key[:3] for key in stragglers} == {key[:3] for key in expected},
        "all_right": stragglers == expected,
    }
    return {
        **parts,
        "innocent_named": bool(
            {rank for key in stragglers for rank in key[1]}
            - {rank for key in expected for rank in key[1]}
        ),
        "hidden_right": _hidden_right(cell, simulated, analysis),
        "verdict": analysis.bottleneck.kind,
        "recovered": _recovered(cell, simulated, analysis),
        "found": sorted(map(repr, stragglers)),
    }


def _hidden_right(cell: Cell, simulated: Simulated, analysis: Analysis) -> bool | None:
    """Whether the analysis knows if the second of two slow ranks hides behind the first."""
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


def _recovered(cell: Cell, simulated: Simulated, analysis: Analysis) -> float | None:
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

"""Score an analysis against the injected faults, along with two naive readings of the same run.

Pure functions, the same for simulated and real runs. The naive readings do not join the ranks' logs
as the analysis does: one rank's own log against its own baseline, and the rule of trace analysers
that the rank that is last most often is the straggler.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from stallscope.analysis import Analysis
from stallscope.analysis.ledger.ledger import Ledger
from stallscope.analysis.steps.alignment import align
from stallscope.analysis.stragglers.lateness import Straggler
from stallscope.run import Run
from stallscope.words import STAGES

# With two ranks one of them is last in half of the steps by chance: twice that is always.
_LAST_SHARE_OF_TWO = 0.75

#: What the pages keep of a score, of real and simulated runs alike.
OUTCOMES = (
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

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Injected:
    """What was injected into a run, as measured at the injection."""

    stage: str | None
    who: Literal["one", "all", "rotating", "none"]
    #: The faulty rank, if there is a single one.
    rank: int | None
    #: Per step, on the affected rank; with ``rotating``, on the rank of that step.
    mean_ms: float
    #: The clean run's step.
    step_ms: float


@dataclass(frozen=True)
class Score:
    """How well one run was analysed; fields are None if they do not apply or nothing was found."""

    #: Distinguishes the run from others: framework, ranks, size, way, repeat and so on.
    cell: Mapping[str, Any]
    injected: Injected
    #: Named ranks and hosts.
    named: tuple[int | str, ...]
    #: The stage that was found, and its size.
    stage: str | None
    found_ms: float | None
    cause_right: bool | None
    #: Whether only the injected rank is named; without a single injected rank, whether none is
    #: named.
    rank_right: bool
    verdict: str
    verdict_right: bool
    #: The share of ranks whose own log alone points at the injected stage.
    own_log_right: float | None
    #: The ranks and the stage that the latest-arrival rule names.
    latest: tuple[int, str] | None
    latest_cause_right: bool | None
    latest_rank_right: bool
    #: Coefficient of variation of every rank's own step time in the clean run.
    cv: tuple[float, ...]
    #: Exposed allreduce of the clean run: a verdict correctly prefers it to a smaller fault.
    allreduce_ms: float | None

    @property
    def recovered(self) -> float | None:
        """Return the size found as a fraction of the injected size."""
        if self.found_ms is None or self.injected.mean_ms <= 0:
            return None
        return self.found_ms / self.injected.mean_ms


def score(analysis: Analysis, injected: Injected, cell: Mapping[str, Any]) -> Score:
    """Score an analysis, which must have been made against a baseline."""
    named = _named(analysis.stragglers)
    stage, found_ms = _blamed(analysis, injected)
    none_expected = injected.who != "one"
    last = latest_arrival(analysis.steady)
    clean = analysis.baseline or analysis
    allreduce = clean.entry("allreduce")
    return Score(
        cell=dict(cell),
        injected=injected,
        named=named,
        stage=stage,
        found_ms=found_ms,
        cause_right=None if injected.who == "none" else stage == injected.stage,
        rank_right=not named if none_expected else _names_exactly(analysis, injected.rank),
        verdict=analysis.bottleneck.kind,
        verdict_right=_verdict_right(analysis, injected),
        own_log_right=_own_log_right(analysis, injected),
        latest=last,
        latest_cause_right=(
            None if injected.who == "none" else last is not None and last[1] == injected.stage
        ),
        latest_rank_right=(
            last is None if none_expected else last is not None and last[0] == injected.rank
        ),
        cv=step_time_variation(clean),
        allreduce_ms=None if allreduce is None else allreduce.ms,
    )


# -- the analysis --------------------------------------------------------------------------------


def _named(stragglers: Iterable[Straggler]) -> tuple[int | str, ...]:
    ranks = {rank for straggler in stragglers for rank in straggler.ranks}
    hosts = {host for straggler in stragglers for host in straggler.hosts}
    return (*sorted(ranks), *sorted(hosts))


def _names_exactly(analysis: Analysis, rank: int | None) -> bool:
    """Return whether this rank is named as persistently slow, and no other rank or host at all."""
    persistent = {
        r
        for straggler in analysis.stragglers
        if straggler.pattern == "persistent"
        for r in straggler.ranks
    }
    return persistent == {rank} and _named(analysis.stragglers) == (rank,)


def _blamed(analysis: Analysis, injected: Injected) -> tuple[str | None, float | None]:
    """Return the stage that the analysis blames for this kind of fault, and by how much."""
    if injected.who == "all":
        stage = largest_excess(analysis)
        entry = analysis.entry(injected.stage or "")
        return stage, None if entry is None else entry.excess_ms
    if injected.who == "none":
        return largest_excess(analysis), None
    pattern = "rotating" if injected.who == "rotating" else "persistent"
    stragglers = [straggler for straggler in analysis.stragglers if straggler.pattern == pattern]
    # Of several, compare the one on the injected rank or stage with the truth.
    stragglers.sort(
        key=lambda straggler: (
            injected.rank not in straggler.ranks,
            straggler.stage != injected.stage,
        )
    )
    if not stragglers:
        return None, None
    best = stragglers[0]
    truly = injected.rank in best.ranks or injected.who == "rotating"
    return best.stage, best.excess_ms.value if truly else None


def largest_excess(analysis: Analysis) -> str | None:
    """Return the stage that exceeds its baseline most and by more than chance; None without one."""
    excess = {stage: _significant_excess(analysis, stage) for stage in STAGES}
    largest = max(STAGES, key=lambda stage: excess[stage])
    return largest if excess[largest] > 0 else None


def _significant_excess(analysis: Analysis, stage: str) -> float:
    """Return the milliseconds over the baseline; 0 if the two intervals together could explain them."""
    entry = analysis.entry(stage)
    base = None if analysis.baseline is None else analysis.baseline.entry(stage)
    if entry is None or entry.excess_ms is None or entry.ci95_ms is None:
        return 0.0
    if base is None or base.ci95_ms is None:
        return 0.0
    widths = [(high - low) / 2 for low, high in (entry.ci95_ms, base.ci95_ms)]
    return entry.excess_ms if entry.excess_ms > np.hypot(*widths) else 0.0


def _verdict_right(analysis: Analysis, injected: Injected) -> bool:
    verdict = analysis.bottleneck
    if injected.who == "one":
        return (verdict.kind, verdict.cause, verdict.ranks) == (
            "imbalance",
            injected.stage,
            (injected.rank,),
        )
    if verdict.ranks or verdict.hosts:
        return False
    if injected.who == "none":
        return not verdict.fault
    if injected.who == "all":
        return verdict.kind == injected.stage
    return injected.stage in (verdict.kind, verdict.cause)


# -- naive readings ------------------------------------------------------------------------------


def _own_log_right(analysis: Analysis, injected: Injected) -> float | None:
    if injected.who == "none" or analysis.steady is None:
        return None
    if analysis.baseline is None or analysis.baseline.steady is None:
        return None
    stages = own_log(analysis.run, analysis.steady, analysis.baseline.run, analysis.baseline.steady)
    return statistics.mean(stage == injected.stage for stage in stages)


def own_log(run: Run, steady: Ledger, baseline: Run, base_steady: Ledger) -> list[str]:
    """Return, per rank, the stage that its own log shows to have grown most since its own baseline."""
    stages = _own_stages(run, steady.steps)
    base = _own_stages(baseline, base_steady.steps)
    names = list(stages)
    grown = np.stack([stages[name] - base[name] for name in names])
    return [names[index] for index in grown.argmax(axis=0)]


def _own_stages(run: Run, steps: npt.NDArray[np.int64]) -> dict[str, Floats]:
    """Return, per rank, means of one log alone: there, waiting for other ranks looks like allreduce."""
    aligned = align(run, max(log.generation for log in run.logs))
    here = _consecutive(aligned.steps, aligned.epochs) & np.isin(aligned.steps[1:], steps)
    begin, data, ready, reduced = (
        getattr(aligned, name)[1:][here] for name in ("begin", "data", "ready", "reduced")
    )
    before = aligned.reduced[:-1][here]
    return {
        "input": (data - begin).mean(axis=0) / 1e6,
        "compute": (ready - data).mean(axis=0) / 1e6,
        "other": (begin - before).mean(axis=0) / 1e6,
        "allreduce": (reduced - ready).mean(axis=0) / 1e6,
    }


def latest_arrival(steady: Ledger | None) -> tuple[int, str] | None:
    """Return the rank that is ready last most often, and the stage that the rule blames."""
    if steady is None or len(steady.ranks) < 2:
        return None
    ranks = len(steady.ranks)
    share = np.bincount(steady.critical, minlength=ranks) / len(steady)
    last = int(share.argmax())
    limit = _LAST_SHARE_OF_TWO if ranks == 2 else 2 / ranks
    if share[last] <= limit:
        return None
    excess = {}
    for stage in STAGES:
        means = getattr(steady, stage).mean(axis=0)
        excess[stage] = float(means[last] - np.median(means))
    return steady.ranks[last], max(excess, key=lambda stage: excess[stage])


def step_time_variation(clean: Analysis) -> tuple[float, ...]:
    """Return, per rank, the variation of its own step times, from reduced to the next ready."""
    if clean.steady is None:
        return ()
    aligned = align(clean.run, max(log.generation for log in clean.run.logs))
    here = _consecutive(aligned.steps, aligned.epochs) & np.isin(
        aligned.steps[1:], clean.steady.steps
    )
    step_times = (aligned.ready[1:][here] - aligned.reduced[:-1][here]).astype(np.float64)
    return tuple((step_times.std(axis=0) / step_times.mean(axis=0)).tolist())


def _consecutive(
    steps: npt.NDArray[np.int64], epochs: npt.NDArray[np.int64]
) -> npt.NDArray[np.bool_]:
    """Return, per step but the first, whether it follows the one before without a gap."""
    return np.asarray((np.diff(steps) == 1) & (np.diff(epochs) == 0))


def score_of(content: dict[str, Any]) -> Score:
    """Return a score that was written as JSON."""
    tuples = {
        name: None if content[name] is None else tuple(content[name])
        for name in ("named", "latest", "cv")
    }
    return Score(**{**content, **tuples, "injected": Injected(**content["injected"])})

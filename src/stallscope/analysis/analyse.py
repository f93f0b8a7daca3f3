"""From a Run to an Analysis."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from stallscope.run import Run

from .alignment import NULL, AlignedSteps, align
from .baseline import match_baseline
from .findings import find
from .job_time import host_step_times, job_time
from .ledger import Ledger, build_ledger
from .result import (
    ENTRIES,
    Analysis,
    BaselineMatch,
    Bottleneck,
    LedgerEntry,
    RankSummary,
    StepTime,
    concatenated,
)
from .stats import mean_with_interval
from .verdict import Replay, decide, replay
from .warmup import warm_up_steps

Ints = npt.NDArray[np.int64]


def analyse(run: Run, baseline: Run | None = None) -> Analysis:
    """Take a run apart, against a baseline where there is one."""
    base = None if baseline is None else analyse(baseline)
    # A log without any step yet is no world of its own.
    generations = np.unique(run.steps["generation"].to_numpy()).tolist()
    worlds = [align(run, generation) for generation in generations]
    ledgers = [build_ledger(world) for world in worlds]
    warm = [warm_up_steps(ledger) for ledger in ledgers]
    job = job_time(run, worlds, ledgers, warm)

    ledger = concatenated(ledgers)
    world = _last_world(worlds, ledgers)
    warm_up = np.zeros(0, bool) if ledger is None else warm_up_steps(ledger)
    steady = None if ledger is None else ledger.take(~warm_up)
    if steady is not None and not len(steady):
        steady = None
    match = None if baseline is None else match_baseline(run, baseline)
    base_steady = None if base is None else base.steady
    found = replay(steady, world.hosts, base_steady) if world and steady else None
    step = _step_time(worlds, steady)
    throughput = _throughput(run, steady, step)
    return Analysis(
        run=run,
        job=job,
        step=step,
        entries=() if steady is None else _entries(steady, base),
        ranks=() if world is None else _rank_summaries(world, steady),
        bottleneck=_bottleneck(run, steady, found, base_steady is not None),
        what_if=() if found is None else found.gains,
        findings=find(run, base is not None),
        warnings=_warnings(run, worlds, ledgers, match, baseline),
        samples_per_second=throughput,
        epochs=_epochs(worlds),
        steps=sum(len(world.steps) for world in worlds),
        ledger=ledger,
        warm_up=warm_up,
        baseline=base,
        match=match,
        gap=_gap(run, throughput, base),
    )


def _last_world(worlds: list[AlignedSteps], ledgers: list[Ledger]) -> AlignedSteps | None:
    """The generation whose ranks the figures are about: the last one with a ledger, or at all."""
    with_ledger = [world for world, ledger in zip(worlds, ledgers, strict=True) if len(ledger)]
    return next(reversed(with_ledger or worlds), None)


def _bottleneck(
    run: Run, steady: Ledger | None, found: Replay | None, has_baseline: bool
) -> Bottleneck:
    if steady is None or found is None:
        stamps = run.fact("stamps") or {}
        nothing = "no step was recorded" if not run.steps.num_rows else None
        reason = nothing or stamps.get("reason") or "no step has all of its stamps on every rank"
        return Bottleneck(
            "insufficient_data", None, f"The stages of the steps were not measured: {reason}."
        )
    if run.size > 1 and len(run.ranks) == 1:
        return Bottleneck(
            "insufficient_data",
            None,
            f"One rank's log of {run.size}: the callback was added on rank {run.ranks[0]} only. "
            "Waiting for another rank and slow communication look the same from here.",
        )
    return decide(steady, found, run.missing_ranks, has_baseline)


def _entries(steady: Ledger, base: Analysis | None) -> tuple[LedgerEntry, ...]:
    step = float(steady.total.mean()) / 1e6
    entries = []
    for name in ENTRIES:
        mean = mean_with_interval(steady.entry(name)).scaled(1e-6)
        other = None if base is None else base.entry(name)
        entries.append(
            LedgerEntry(
                name,
                mean.value,
                mean.value / step if step else 0.0,
                mean.ci95,
                None if other is None else other.ms,
                None if other is None else mean.value - other.ms,
            )
        )
    return tuple(entries)


def _step_time(worlds: list[AlignedSteps], steady: Ledger | None) -> StepTime | None:
    if steady is not None:
        total = steady.total
    else:
        total = np.concatenate([np.zeros(0, np.int64), *map(host_step_times, worlds)])
    if not len(total):
        return None
    p50, p95, p99 = (np.percentile(total, (50, 95, 99)) / 1e6).tolist()
    mean = mean_with_interval(total).scaled(1e-6)
    return StepTime(mean.value, p50, p95, p99, mean.ci95)


def _rank_summaries(world: AlignedSteps, steady: Ledger | None) -> tuple[RankSummary, ...]:
    offset = world.clocks.mean_offset() / 1e6
    uncertainty = world.clocks.uncertainty / 1e6
    if steady is None:
        return tuple(
            RankSummary(
                rank,
                host,
                input_ms=None,
                compute_ms=None,
                wait_ms=None,
                allreduce_ms=None,
                other_ms=None,
                critical_share=None,
                clock_offset_ms=float(offset[r]),
                clock_uncertainty_ms=float(uncertainty[r]),
            )
            for r, (rank, host) in enumerate(zip(world.ranks, world.hosts, strict=True))
        )
    means = {
        name: getattr(steady, name).mean(axis=0) / 1e6
        for name in ("input", "compute", "wait", "other")
    }
    allreduce = float(steady.allreduce.mean()) / 1e6
    critical = np.bincount(steady.critical, minlength=len(world.ranks)) / len(steady)
    return tuple(
        RankSummary(
            rank,
            host,
            float(means["input"][r]),
            float(means["compute"][r]),
            float(means["wait"][r]),
            allreduce,
            float(means["other"][r]),
            float(critical[r]),
            float(offset[r]),
            float(uncertainty[r]),
        )
        for r, (rank, host) in enumerate(zip(world.ranks, world.hosts, strict=True))
    )


def _throughput(run: Run, steady: Ledger | None, step: StepTime | None) -> float | None:
    """Samples per second of all ranks together, over the steady steps."""
    if step is None or not step.mean:
        return None
    if steady is not None and (steady.samples != NULL).all():
        # Ranks whose logs are missing work through as much as those that are there.
        per_step = float(steady.samples.mean()) * run.size / len(steady.ranks)
    elif run.fact("batch_size") is not None:
        turns = float(np.mean(run.steps["micro"].to_numpy()))
        per_step = float(run.fact("batch_size")) * turns * run.size
    else:
        return None
    return per_step / (step.mean / 1e3)


def _gap(run: Run, throughput: float | None, base: Analysis | None) -> float | None:
    """The fraction of the baseline's throughput that is lost; None between different sizes."""
    if throughput is None or base is None or not base.samples_per_second:
        return None
    return 1 - throughput / base.samples_per_second if run.size == base.run.size else None


def _epochs(worlds: list[AlignedSteps]) -> int:
    seen = [world.epochs[world.epochs >= 0] for world in worlds]
    return len(np.unique(np.concatenate(seen))) if seen else 0


def _warnings(
    run: Run,
    worlds: list[AlignedSteps],
    ledgers: list[Ledger],
    match: BaselineMatch | None,
    baseline: Run | None,
) -> tuple[str, ...]:
    warnings = [str(problem) for problem in run.problems]
    steps = sum(len(world.steps) for world in worlds)
    used = sum(len(ledger) for ledger in ledgers)
    if 0 < used < steps:
        warnings.append(
            f"{steps - used} of {steps} steps are not in the ledger: not all ranks have all of their "
            "stamps"
        )
    if len(worlds) > 1:
        warnings.append(
            f"the run has {len(worlds)} generations (restarts, or steps that came again); figures per "
            "rank are over those with the last one's ranks"
        )
    if match is not None and match.differs:
        warnings.append("the baseline is another kind of run: " + "; ".join(match.differs))
    if baseline is not None and not baseline.synthetic:
        warnings.append("the baseline was not recorded with synthetic=True")
    return tuple(warnings)

"""From a Run to an Analysis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stallscope.arrays.blocks import NULL, Block
from stallscope.arrays.pivot import by_parts
from stallscope.arrays.stats import Mean, mean_with_interval
from stallscope.arrays.types import Ints
from stallscope.run import Run

from .advice import advise
from .findings import by_severity, find
from .findings.clocks import clock_findings
from .findings.finding import Finding
from .findings.input_alone import in_a_sentence, input_too_slow_alone, stage_times
from .findings.loaders import ranks_starve_in_turn
from .findings.rank_0 import rank_0_extra_work
from .findings.slow_steps import step_findings
from .gains.attribution import Attribution, attribute
from .gains.baseline import BaselineMatch, decompose, match_baseline, match_single
from .gains.bottleneck import Bottleneck
from .gains.input_times import InputRates, input_rates
from .gains.verdict import Compared, decide, without_steps
from .ledger.change_points import ChangePoint, change_points
from .ledger.entries import CauseEntry, LedgerEntry, cause_entries, ledger_entries
from .ledger.epochs import EpochTimes, epoch_times, samples_of_all_ranks
from .ledger.generations import Generations
from .ledger.job_time import host_step_times, job_time
from .ledger.ledger import Ledger
from .ledger.sampled import set_aside, skipped_steps, unlike_the_rest
from .network.communication import Communication, communication
from .result import Analysis, Coverage, RankSummary, StepTime
from .settings.cores import CoreUse
from .settings.setup import Setup
from .steps.alignment import AlignedSteps
from .steps.clocks import ClockSummary


def analyse(
    run: Run,
    baseline: Run | Analysis | None = None,
    single: Run | Analysis | None = None,
    network_bandwidth: float | None = None,
) -> Analysis:
    """Take a run apart.

    Args:
        run: the run.
        baseline: the same job on synthetic data; as an analysis, it is shared by many runs.
        single: the same job on synthetic data and one rank, likewise.
        network_bandwidth: GB/s of bus bandwidth that the network is known to give.
    """
    base, alone = _analysed(baseline), _analysed(single)
    baseline = None if base is None else base.run
    single = None if alone is None else alone.run
    made = Generations.of(run)
    worlds, ledgers, steady, world = made.worlds, made.ledgers, made.steady, made.last_world
    clocks = None if world is None else _clocks(world)
    base_steady = None if base is None else base.steady
    match = None if baseline is None else match_baseline(run, baseline)
    # What another job shows is no prediction for this one.
    same_job = base_steady if match is not None and not match.differs else None
    if same_job is not None and (steady is None or same_job.ranks != steady.ranks):
        same_job = None
    found = None
    if world is not None and steady is not None:
        # On one clock arrivals need no completions: nothing is hidden.
        blind = world.clocks.skew if len(world.clocks.names) > 1 else 0.0
        found = attribute(steady, world.hosts, same_job, blind, CoreUse.of(run))
    stragglers = () if found is None or run.one_log_of_many else found.stragglers
    step = _step_time(worlds, steady)
    throughput = _throughput(run, steady, step)
    changes = () if steady is None else change_points(steady)
    gap = _gap(run, throughput, step, base)
    moved = _communication(run, steady, network_bandwidth)
    rates = _input_rates(run, throughput, base, found)
    alike = alone is not None and not match_single(run, alone.run).differs
    compared = Compared(same_job, alone.steady if alone is not None and alike else None)
    verdict = _bottleneck(run, steady, found, compared, moved, rates)
    coverage = _coverage(run, worlds, ledgers)
    waiting_seen = not run.one_log_of_many
    entries, by_cause = _entries(steady, base, alone, waiting_seen)
    analysis = Analysis(
        run=run,
        job=job_time(run, worlds, ledgers, made.warm),
        step=step,
        entries=entries,
        by_cause=by_cause,
        ranks=() if world is None else _rank_summaries(world, steady, waiting_seen),
        bottleneck=verdict,
        stragglers=stragglers,
        what_if=() if found is None or run.one_log_of_many else found.gains,
        predicted_from="run" if same_job is None else "baseline",
        findings=by_severity(
            [
                *_findings(run, base is not None, single, clocks, steady, changes, found),
                *input_too_slow_alone(rates, Setup.of(run), verdict),
            ]
        ),
        warnings=_warnings(run, made, coverage, match, baseline, single),
        samples_per_second=throughput,
        epochs=_epochs(worlds),
        coverage=coverage,
        clocks=clocks,
        changes=changes,
        communication=moved,
        ledger=made.ledger,
        warm_up=made.warm_up,
        steady=steady,
        baseline=base,
        match=match,
        gap=None if gap is None else gap.value,
        gap_ci95=None if gap is None else gap.ci95,
        single=alone,
        input_rates=rates,
        decomposition=(
            decompose(steady, base_steady, None if alone is None else alone.steady)
            if steady is not None and base_steady is not None
            else None
        ),
    )
    known = epoch_times(run)
    return analysis if known is None else _of_epochs(analysis, known)


def _entries(
    steady: Ledger | None, base: Analysis | None, alone: Analysis | None, waiting_seen: bool
) -> tuple[tuple[LedgerEntry, ...], tuple[CauseEntry, ...]]:
    """Make the entries of both ledgers, compared with the baseline and the run on one rank."""
    if steady is None:
        return (), ()
    others = (base, alone)
    of_base, of_single = (() if one is None else one.entries for one in others)
    causes_of_base, causes_of_single = (() if one is None else one.by_cause for one in others)
    return (
        ledger_entries(steady, of_base, of_single, waiting_seen),
        cause_entries(steady, causes_of_base, causes_of_single, waiting_seen),
    )


def _analysed(other: Run | Analysis | None) -> Analysis | None:
    return analyse(other) if isinstance(other, Run) else other


def _of_epochs(analysis: Analysis, known: EpochTimes) -> Analysis:
    """The analysis of a run without steps; findings about steps do not apply."""
    return replace(
        analysis,
        bottleneck=without_steps(known),
        findings=(),
        samples_per_second=samples_of_all_ranks(analysis.run, known),
        epochs=len({(one.fit, one.epoch) for one in known.epochs}),
        epoch_times=known,
    )


def _clocks(world: AlignedSteps) -> ClockSummary:
    clocks, steps = world.clocks, len(world.steps)
    late = world.late.per_step(steps)
    return ClockSummary(
        clocks.method,
        clocks.skew / 1e6 if clocks.skew_seen else None,
        None if clocks.bound is None else clocks.bound / 1e6,
        tuple((jump.clock, int(world.steps[jump.at]), jump.ms) for jump in clocks.jumps),
        float(clocks.violations),
        float((late > 0).mean()) if steps else 0.0,
        float(late.mean()) / 1e6 if steps else 0.0,
        tuple((world.late.per_rank(len(world.ranks)) / max(steps, 1)).tolist()),
    )


def _bottleneck(
    run: Run,
    steady: Ledger | None,
    found: Attribution | None,
    compared: Compared,
    moved: Communication | None,
    rates: InputRates | None,
) -> Bottleneck:
    if steady is None or found is None:
        stamps = run.fact("stamps") or {}
        nothing = "no step was recorded" if not run.rows else None
        reason = (
            nothing or stamps.get("reason") or "no step has all of its timestamps on every rank"
        )
        return Bottleneck(
            "insufficient_data", None, f"The stages of the steps were not measured: {reason}."
        )
    if run.one_log_of_many:
        return Bottleneck(
            "insufficient_data",
            None,
            f"Only rank {run.ranks[0]}'s log is here; {run.size} ranks trained. The other logs were not "
            "recorded or not collected. Waiting for another rank and slow communication look the same "
            "in one log.",
        )
    verdict = decide(steady, found, run, compared)
    if verdict.kind == "input" and rates is not None:
        evidence = f"{verdict.evidence} {in_a_sentence(rates)}".rstrip()
        verdict = replace(verdict, evidence=evidence)
    advice = advise(run, verdict, steady, found, moved, stage_times(rates))
    return replace(verdict, advice=advice)


def _input_rates(
    run: Run, throughput: float | None, base: Analysis | None, found: Attribution | None
) -> InputRates | None:
    same_size = base is not None and base.run.size == run.size
    synthetic = base.samples_per_second if base is not None and same_size else None
    return input_rates(run, throughput, synthetic, () if found is None else found.gains)


def _step_time(worlds: Sequence[AlignedSteps], steady: Ledger | None) -> StepTime | None:
    if steady is not None:
        total = steady.total
    else:
        total = np.concatenate([np.zeros(0, np.int64), *map(host_step_times, worlds)])
    if not len(total):
        return None
    p50, p95, p99 = (np.percentile(total, (50, 95, 99)) / 1e6).tolist()
    mean = mean_with_interval(total).scaled(1e-6)
    return StepTime(mean.value, p50, p95, p99, mean.ci95)


def _rank_summaries(
    world: AlignedSteps, steady: Ledger | None, waiting_seen: bool
) -> tuple[RankSummary, ...]:
    offset = world.clocks.mean_offset / 1e6
    uncertainty = world.clocks.uncertainty / 1e6
    means: dict[str, list[float | None]] = {}
    nothing: list[float | None] = [None] * len(world.ranks)
    if steady is not None:
        means |= _means(steady)
    if steady is not None and not waiting_seen:
        del means["wait"]
    elif steady is not None:
        allreduce = float(steady.allreduce.mean()) / 1e6
        means["allreduce"] = [allreduce] * len(world.ranks)
        critical = np.bincount(steady.critical, minlength=len(world.ranks)) / len(steady)
        means["critical"] = critical.tolist()
    return tuple(
        RankSummary(
            rank,
            host,
            input_ms=means.get("input", nothing)[r],
            compute_ms=means.get("compute", nothing)[r],
            wait_ms=means.get("wait", nothing)[r],
            allreduce_ms=means.get("allreduce", nothing)[r],
            other_ms=means.get("other", nothing)[r],
            critical_share=means.get("critical", nothing)[r],
            clock_offset_ms=float(offset[r]),
            clock_uncertainty_ms=float(uncertainty[r]),
        )
        for r, (rank, host) in enumerate(zip(world.ranks, world.hosts, strict=True))
    )


def _means(steady: Ledger) -> dict[str, list[float | None]]:
    """Of stages and waiting, per rank: milliseconds over its measured steps; None without any."""
    return {
        name: [None if np.isnan(one) else one / 1e6 for one in means.tolist()]
        for name, means in steady.rank_means.items()
    }


def _throughput(run: Run, steady: Ledger | None, step: StepTime | None) -> float | None:
    """Samples per second of all ranks together, over the steady steps."""
    if step is None or not step.mean:
        return None
    missing, samples = (1, 0) if steady is None else steady.cells.summed(_samples)
    if steady is not None and not missing:
        # Ranks whose logs are missing work through as much as those that are there.
        per_step = float(samples / len(steady)) * run.size / len(steady.ranks)
    elif run.fact("batch_size") is not None:
        turns = sum(by_parts(run.steps, _turns)) / run.rows
        per_step = float(run.fact("batch_size")) * turns * run.size
    else:
        return None
    return per_step / (step.mean / 1e3)


def _turns(part: pa.Table) -> int:
    """Of the loop, in all rows."""
    return int(pc.sum(part["micro"]).as_py())


def _samples(block: Block) -> Ints:
    """In how many cells they are missing, and their sum."""
    samples = block["samples"]
    return np.array([(samples == NULL).sum(), samples.sum()])


def _gap(
    run: Run, throughput: float | None, step: StepTime | None, base: Analysis | None
) -> Mean | None:
    """The fraction of the baseline's throughput that is lost; None between different sizes."""
    if throughput is None or step is None or base is None or base.step is None:
        return None
    if not base.samples_per_second or run.size != base.run.size:
        return None
    kept = throughput / base.samples_per_second
    if step.ci95 is None or base.step.ci95 is None:
        return Mean(1 - kept, None)
    relative = np.hypot(
        (step.ci95[1] - step.ci95[0]) / 2 / step.mean,
        (base.step.ci95[1] - base.step.ci95[0]) / 2 / base.step.mean,
    )
    half = float(kept * relative)
    return Mean(1 - kept, (1 - kept - half, 1 - kept + half))


def _epochs(worlds: Sequence[AlignedSteps]) -> int:
    seen = [world.epochs[world.epochs >= 0] for world in worlds]
    return len(np.unique(np.concatenate(seen))) if seen else 0


def _coverage(run: Run, worlds: Sequence[AlignedSteps], ledgers: Sequence[Ledger]) -> Coverage:
    skipped = skipped_steps(run)
    steps = sum(len(world.steps) for world in worlds) + skipped
    used = sum(len(ledger) for ledger in ledgers)
    complete = sum(int(ledger.cells.summed(_complete)) for ledger in ledgers)
    return Coverage(steps, complete, used - complete, skipped + set_aside(run, worlds, ledgers))


def _complete(block: Block) -> int:
    return int(block["measured"].all(axis=1).sum())


def _lacks_most(ledgers: Sequence[Ledger]) -> tuple[int, int]:
    """The rank whose timestamps are missing in most steps of the ledgers, and in how many."""
    lacking: dict[int, int] = {}
    for ledger in ledgers:
        counts = ledger.cells.summed(_lacking).tolist()
        for rank, count in zip(ledger.ranks, counts, strict=True):
            lacking[rank] = lacking.get(rank, 0) + count
    return max(lacking.items(), key=lambda item: item[1])


def _lacking(block: Block) -> Ints:
    return np.asarray((~block["measured"]).sum(axis=0))


def _communication(
    run: Run, steady: Ledger | None, network_bandwidth: float | None
) -> Communication | None:
    if steady is None or run.missing_ranks:
        return None
    return communication(steady, run.size, run.fact("gradient_bytes"), network_bandwidth)


def _findings(
    run: Run,
    has_baseline: bool,
    single: Run | None,
    clocks: ClockSummary | None,
    steady: Ledger | None,
    changes: Sequence[ChangePoint],
    attribution: Attribution | None,
) -> tuple[Finding, ...]:
    found = [*find(run, has_baseline, single=single)]
    found += [] if clocks is None else clock_findings(clocks)
    found += [] if steady is None else step_findings(steady, tuple(changes), Setup.of(run))
    if attribution is not None and steady is not None and not run.one_log_of_many:
        found += rank_0_extra_work(attribution.stragglers)
        found += ranks_starve_in_turn(attribution.loaders_at_work_ms, steady)
    return by_severity(found)


def _warnings(
    run: Run,
    made: Generations,
    coverage: Coverage,
    match: BaselineMatch | None,
    baseline: Run | None,
    single: Run | None,
) -> tuple[str, ...]:
    warnings = [str(problem) for problem in run.problems]
    if coverage.complete + coverage.partial and coverage.unused:
        warnings.append(
            f"{coverage.unused} of {coverage.steps} steps are not in the ledger: too many ranks lack "
            "timestamps in them, or the step before is missing"
        )
    if coverage.partial:
        rank, lacking = _lacks_most(made.ledgers)
        warnings.append(
            f"in {coverage.partial} of {coverage.steps} steps a few ranks' timestamps are missing (rank "
            f"{rank}'s in {lacking}): waiting for them shows as allreduce there"
        )
    if len(made.worlds) > 1:
        warnings.append(
            f"the run has {len(made.worlds)} generations (restarts, or steps that came again); figures "
            "per rank are over those with the last one's ranks"
        )
    unlike = None if made.steady is None else unlike_the_rest(run, made.steady)
    if unlike is not None:
        warnings.append(unlike)
    if match is not None and match.differs:
        warnings.append("the baseline is another kind of run: " + "; ".join(match.differs))
    if baseline is not None and not baseline.synthetic:
        warnings.append("the baseline was not recorded with synthetic=True")
    if single is not None:
        differs = match_single(run, single).differs
        if differs:
            warnings.append("the run on one rank is another kind of run: " + "; ".join(differs))
    return tuple(warnings)

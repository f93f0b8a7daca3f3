"""Compute the figures of a run's steps: step time, throughput, coverage, clocks, means per rank."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stallscope.arrays.blocks import NULL, Block
from stallscope.arrays.pivot import by_parts
from stallscope.arrays.stats import Mean, mean_with_interval
from stallscope.arrays.types import Ints
from stallscope.formatting.lists import counted, joined, ranks_in_words
from stallscope.run import IncompleteRank, Run

from ..steps.alignment import PAUSES, AlignedSteps
from ..steps.clocks import ClockSummary
from .by_generation import Generations
from .job_time import host_step_times
from .ledger import Ledger
from .sampled import count_sampled_out, holes, skipped_steps


@dataclass(frozen=True)
class StepTime:
    """Milliseconds per steady step."""

    mean: float
    p50: float
    p95: float
    p99: float
    ci95: tuple[float, float] | None


@dataclass(frozen=True)
class RankSummary:
    """One rank's means over its steady steps, milliseconds; None if not measured."""

    rank: int
    host: str
    input_ms: float | None
    compute_ms: float | None
    wait_ms: float | None
    allreduce_ms: float | None
    other_ms: float | None
    #: How often it was the last to be ready, of the steps in which its timestamps are known.
    critical_share: float | None
    clock_offset_ms: float
    clock_uncertainty_ms: float
    #: Seconds that the rank itself spent in validation and in checkpoints, in its last generation.
    validation_s: float = 0.0
    checkpoint_s: float = 0.0


@dataclass(frozen=True)
class Coverage:
    """The numbers of recorded steps and of steps in the ledger."""

    steps: int
    #: Steps that all ranks measured, and steps that a few of many ranks did not measure.
    complete: int
    partial: int
    #: Steps that were left out on purpose, in a run that records a sample of its steps.
    sampled_out: int = 0
    #: The ranks whose logs lack many of these steps.
    incomplete: tuple[IncompleteRank, ...] = ()
    #: The first and last of each stretch of steps that no log has.
    holes: tuple[tuple[int, int], ...] = ()

    @property
    def unused(self) -> int:
        """Return the number of steps that should be in the ledger but are not."""
        return self.steps - self.complete - self.partial - self.sampled_out


def step_time(generations: Generations) -> StepTime | None:
    """Summarise the time of steady steps; without a ledger, the time from one start to the next."""
    if generations.steady is not None:
        total = generations.steady.total
    else:
        ends = map(host_step_times, generations.aligned)
        total = np.concatenate([np.zeros(0, np.int64), *ends])
    if not len(total):
        return None
    p50, p95, p99 = (np.percentile(total, (50, 95, 99)) / 1e6).tolist()
    mean = mean_with_interval(total).scaled(1e-6)
    return StepTime(mean.value, p50, p95, p99, mean.ci95)


def throughput(run: Run, steady: Ledger | None, step: StepTime | None) -> float | None:
    """Return the samples per second of all ranks together, over the steady steps; None if unknown."""
    if step is None or not step.mean:
        return None
    missing, samples = (1, 0) if steady is None else steady.cells.summed(_samples)
    if steady is not None and not missing:
        # Ranks without logs are assumed to process as many samples as the others.
        per_step = float(samples / len(steady)) * run.size / len(steady.ranks)
    elif run.fact("batch_size") is not None:
        batches = sum(by_parts(run.steps, ("micro",), _batches)) / run.rows
        per_step = float(run.fact("batch_size")) * batches * run.size
    else:
        return None
    return per_step / (step.mean / 1e3)


def _batches(part: pa.Table) -> int:
    """Count the batches of all rows."""
    return int(pc.sum(part["micro"]).as_py())


def _samples(block: Block) -> Ints:
    """Kernel: count the cells without samples, and sum the samples."""
    samples = block["samples"]
    return np.array([(samples == NULL).sum(), samples.sum()])


def throughput_gap(
    rate: float | None,
    step: StepTime | None,
    base_rate: float | None,
    base_step: StepTime | None,
) -> Mean | None:
    """Return the fraction of a baseline's throughput that is lost; None if a figure is unknown.

    Args:
        rate: samples per second of the run.
        step: step time of the run.
        base_rate: samples per second of the baseline.
        base_step: step time of the baseline.
    """
    if rate is None or step is None or not base_rate or base_step is None:
        return None
    kept = rate / base_rate
    if step.ci95 is None or base_step.ci95 is None:
        return Mean(1 - kept, None)
    relative = np.hypot(
        (step.ci95[1] - step.ci95[0]) / 2 / step.mean,
        (base_step.ci95[1] - base_step.ci95[0]) / 2 / base_step.mean,
    )
    half = float(kept * relative)
    return Mean(1 - kept, (1 - kept - half, 1 - kept + half))


def rank_summaries(generations: Generations, waiting_known: bool) -> tuple[RankSummary, ...]:
    """Average every rank's stages over its measured steady steps.

    Args:
        generations: the run's steps; the last generation's ranks are summarised.
        waiting_known: False if only one of several ranks has a log.
    """
    aligned, steady = generations.last_aligned, generations.steady
    if aligned is None:
        return ()
    offset = aligned.clocks.mean_offset / 1e6
    uncertainty = aligned.clocks.uncertainty / 1e6
    means = {} if steady is None else _means(steady, waiting_known)
    unknown: list[float | None] = [None] * len(aligned.ranks)
    pauses = {kind: _seconds_in(aligned, kind) for kind in PAUSES}
    return tuple(
        RankSummary(
            rank,
            host,
            input_ms=means.get("input", unknown)[r],
            compute_ms=means.get("compute", unknown)[r],
            wait_ms=means.get("wait", unknown)[r],
            allreduce_ms=means.get("allreduce", unknown)[r],
            other_ms=means.get("other", unknown)[r],
            critical_share=means.get("critical", unknown)[r],
            clock_offset_ms=float(offset[r]),
            clock_uncertainty_ms=float(uncertainty[r]),
            validation_s=pauses["validation"][r],
            checkpoint_s=pauses["checkpoint"][r],
        )
        for r, (rank, host) in enumerate(zip(aligned.ranks, aligned.hosts, strict=True))
    )


def _seconds_in(aligned: AlignedSteps, kind: str) -> list[float]:
    """Return the seconds that each rank spent in intervals of a kind."""
    chosen = aligned.intervals.kind == kind
    ns = (aligned.intervals.end - aligned.intervals.begin)[chosen]
    spent = np.bincount(aligned.intervals.rank_index[chosen], ns, minlength=len(aligned.ranks))
    return [float(ns) / 1e9 for ns in spent]


def _means(steady: Ledger, waiting_known: bool) -> dict[str, list[float | None]]:
    """Return each rank's milliseconds per stage, and its critical share; None if not measured."""
    means: dict[str, list[float | None]] = {
        name: [None if np.isnan(mean) else mean / 1e6 for mean in values.tolist()]
        for name, values in steady.rank_means.items()
    }
    if not waiting_known:
        del means["wait"]
        return means
    ranks = len(steady.ranks)
    means["allreduce"] = [float(steady.allreduce.mean()) / 1e6] * ranks
    means["critical"] = [
        None if np.isnan(share) else share for share in steady.last_shares.tolist()
    ]
    return means


def coverage(run: Run, generations: Generations) -> Coverage:
    """Count the recorded steps, and those in the ledger."""
    aligned, ledgers = generations.aligned, generations.ledgers
    skipped = skipped_steps(run)
    steps = sum(len(generation.steps) for generation in aligned) + skipped
    used = sum(len(ledger) for ledger in ledgers)
    complete = sum(int(ledger.cells.summed(_complete)) for ledger in ledgers)
    return Coverage(
        steps,
        complete,
        used - complete,
        skipped + count_sampled_out(run, aligned, ledgers),
        run.incomplete_ranks,
        tuple(chain.from_iterable(holes(run, of_generation) for of_generation in aligned)),
    )


def _complete(block: Block) -> int:
    """Kernel: count the steps that all ranks measured."""
    return int(block["measured"].all(axis=1).sum())


def coverage_warnings(run: Run, covered: Coverage, generations: Generations) -> Iterator[str]:
    """Say which ranks lack steps, how many steps are in the ledger in part, and what is not seen."""
    yield from _incomplete_ranks(run)
    if run.times_host_work and covered.complete + covered.partial:
        yield (
            "compute contains what devices do once every rank has dispatched the step, with its "
            "collectives: the same time on all ranks, as the longest of them is not known"
        )
    steps = counted(covered.steps, "step")
    if covered.complete + covered.partial and covered.unused:
        yield (
            f"{covered.unused:,} of {steps} {'is' if covered.unused == 1 else 'are'} not in the ledger: "
            f"{_why_unused(generations)}"
        )
    if covered.holes:
        yield f"no log has {holes_in_words(covered.holes)}: this time is in no step"
    if covered.partial:
        rank, lacking = _least_complete_rank(generations.ledgers)
        yield (
            f"in {covered.partial:,} of {steps} a few ranks' timestamps are missing (rank {rank}'s in "
            f"{lacking:,}): waiting for these ranks counts as allreduce there"
        )
    count = len(generations.aligned)
    if count > 1:
        yield (
            f"the run has {count} generations (restarts, or other ranks); figures per rank are over "
            "those with the same ranks on the same hosts as the last one"
        )
    if generations.repeats_unknown(0):
        yield (
            "a later generation counts its steps from 0 again, as optimizers without a count do: steps "
            "that were trained twice are unknown, and count twice. With PyTorch, "
            "log.watch(…, first_step=…) sets the number of the first step"
        )


def _incomplete_ranks(run: Run) -> Iterator[str]:
    """Name the ranks whose logs lack many steps, and where, those that lack the same steps together."""
    alike: dict[tuple[int, str, bool], list[IncompleteRank]] = {}
    for rank in run.incomplete_ranks:
        alike.setdefault((rank.generation, rank.missing, rank.left_out), []).append(rank)
    several = len({log.generation for log in run.logs}) > 1
    for (generation, missing, left_out), ranks in alike.items():
        names = ranks_in_words([rank.rank for rank in ranks])
        in_generation = f" in generation {generation}" if several else ""
        lack, log = ("lacks", "log") if len(ranks) == 1 else ("lack", "logs")
        what = (
            f"too few of {ranks[0].of:,} for a comparison: waiting for it counts as allreduce"
            if left_out
            else f"{ranks[0].steps:,} of {ranks[0].of:,} are there"
        )
        yield f"the {log} of {names} {lack} steps {missing}{in_generation}: {what}"


def why_not_measured(run: Run) -> str:
    """Say why no step has all of its stages."""
    if not run.rows:
        return "no step was recorded"
    if run.times_host_work and run.one_log_of_many:
        return "only the logs of the other ranks tell how long this rank's devices wait for them"
    timestamps = run.fact("stamps") or {}
    return timestamps.get("reason") or "no step has all of its timestamps on every rank"


def why_one_log(run: Run, steady: Ledger) -> str:
    """Say why the logs show a single rank of several."""
    (rank,) = steady.ranks
    known, missing = "here", "The other logs were not recorded or not collected"
    if len(run.ranks) > 1:
        known, missing = "long enough", "The other logs are missing or too short"
    return (
        f"only rank {rank}'s log is {known}; {run.size} ranks trained. {missing}. Waiting for another "
        "rank and slow communication look the same in one log"
    )


def holes_in_words(stretches: Sequence[tuple[int, int]]) -> str:
    """Write stretches of steps: ``step 98``; ``100 steps (98–197)``; ``7 steps (98–103 and 110)``."""
    words = [f"{first:,}" if first == last else f"{first:,}–{last:,}" for first, last in stretches]
    count = sum(last - first + 1 for first, last in stretches)
    return f"step {words[0]}" if count == 1 else f"{count:,} steps ({joined(words)})"


def _why_unused(generations: Generations) -> str:
    """Say which ranks lack timestamps in the steps that are not in the ledger."""
    lacking: dict[int, int] = {}
    for aligned, ledger in zip(generations.aligned, generations.ledgers, strict=True):
        unused = ~np.isin(aligned.steps, ledger.steps, assume_unique=True)
        counts = aligned.cells.take(unused).summed(_lacking).tolist() if unused.any() else ()
        for rank, count in zip(aligned.ranks, counts, strict=False):
            lacking[rank] = lacking.get(rank, 0) + count
    most = max(lacking.values(), default=0)
    if not most:
        return "the step before is missing"
    # Ranks that lack a step here and there are not the reason.
    ranks = sorted(rank for rank, count in lacking.items() if 2 * count > most)
    lack = "lacks timestamps in" if len(ranks) == 1 else "lack timestamps in up to"
    return f"{ranks_in_words(ranks)} {lack} {most:,} of them"


def _least_complete_rank(ledgers: Sequence[Ledger]) -> tuple[int, int]:
    """Find the rank without timestamps in most steps; return it and the number of these steps."""
    lacking: dict[int, int] = {}
    for ledger in ledgers:
        counts = ledger.cells.summed(_lacking).tolist()
        for rank, count in zip(ledger.ranks, counts, strict=True):
            lacking[rank] = lacking.get(rank, 0) + count
    return max(lacking.items(), key=lambda item: item[1])


def _lacking(block: Block) -> Ints:
    """Kernel: count the steps that each rank did not measure."""
    return np.asarray((~block["measured"]).sum(axis=0))


def count_epochs(aligned: Sequence[AlignedSteps]) -> int:
    """Count the epochs of all generations."""
    known = [generation.epochs[generation.epochs >= 0] for generation in aligned]
    return len(np.unique(np.concatenate(known))) if known else 0


def clock_summary(aligned: AlignedSteps | None) -> ClockSummary | None:
    """Summarise how the hosts' clocks were aligned; None without steps."""
    if aligned is None:
        return None
    clocks, steps = aligned.clocks, len(aligned.steps)
    late = aligned.late.per_step(steps)
    return ClockSummary(
        clocks.method,
        clocks.skew / 1e6 if clocks.skew_seen else None,
        None if clocks.bound is None else clocks.bound / 1e6,
        tuple((jump.clock, int(aligned.steps[jump.at]), jump.ms) for jump in clocks.jumps),
        float(clocks.violations),
        float((late > 0).mean()) if steps else 0.0,
        float(late.mean()) / 1e6 if steps else 0.0,
        tuple((aligned.late.per_rank(len(aligned.ranks)) / max(steps, 1)).tolist()),
    )

"""Define the result of an analysis, and that of each generation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from stallscope.arrays import arrow
from stallscope.arrays.blocks import NULL
from stallscope.arrays.distributions import normal_quantile
from stallscope.arrays.pivot import RemoteTable, of_generation, with_log_numbers
from stallscope.arrays.stats import Mean, robust_sd, running_median
from stallscope.arrays.types import Bools, Ints
from stallscope.run import Run
from stallscope.words import WorkUnit

from .findings.finding import Finding
from .findings.step_amounts import Amount, amounts
from .findings.step_causes import StepCauses
from .gains.baseline import BaselineMatch, Decomposition, InputRates
from .gains.input_probe import InputProbe
from .gains.what_if import Bottleneck, WhatIf
from .ledger.by_generation import Generations, steady_of
from .ledger.change_points import ChangePoint
from .ledger.epoch_ledger import EpochTimes
from .ledger.job_time import Goodput, JobTime
from .ledger.ledger import CauseEntry, Ledger, LedgerEntry
from .ledger.ledger_figures import Coverage, RankSummary, StepTime, clock_summary
from .ledger.printed_steps import PrintedSteps
from .network.communication import Communication
from .network.network_check import NetworkUse
from .steps.alignment import AlignedSteps
from .steps.clocks import ClockSummary
from .steps.links import Link
from .stopped.stopped import Stopped
from .stragglers.lateness import Straggler

# Smaller differences between runs come from uneven last batches.
_SAME_WORK = 0.02
_BY_CHANCE = 0.002

# A step is late if its last rank is later than chance and its usual lateness explain.
_LATE_SDS = 6.0
_SMALLEST_SHARE = 0.05
_WINDOW = 51


@dataclass(frozen=True)
class Analysis:
    """The analysis of a run."""

    run: Run
    job: JobTime
    step: StepTime | None
    entries: tuple[LedgerEntry, ...]
    by_cause: tuple[CauseEntry, ...]
    ranks: tuple[RankSummary, ...]
    bottleneck: Bottleneck
    stragglers: tuple[Straggler, ...]
    what_if: tuple[WhatIf, ...]
    #: The source of predicted gains: a matching ``baseline``, or the ``run`` itself.
    predicted_from: Literal["baseline", "run"]
    findings: tuple[Finding, ...]
    warnings: tuple[str, ...]
    samples_per_second: float | None
    epochs: int
    coverage: Coverage
    clocks: ClockSummary | None
    changes: tuple[ChangePoint, ...]
    communication: Communication | None
    #: The links between hosts that carry gradients; empty where they were not recorded.
    links: tuple[Link, ...]
    #: The speed of the network without training; None if ``netcheck`` has not measured it.
    network_use: NetworkUse | None
    #: All steps in the ledger, including warm-up; None without timestamps.
    ledger: Ledger | None = field(repr=False)
    #: Whether each step of the ledger is warm-up or changed by an input probe: not steady.
    warm_up: npt.NDArray[np.bool_] = field(repr=False)
    #: The ledger of steady steps; None if nothing is left.
    steady: Ledger | None = field(repr=False)
    baseline: Analysis | None = field(default=None, repr=False)
    match: BaselineMatch | None = None
    #: Fraction of the baseline's throughput that is lost.
    gap: float | None = None
    gap_ci95: tuple[float, float] | None = None
    #: The same job on synthetic data and one rank.
    single: Analysis | None = field(default=None, repr=False)
    decomposition: Decomposition | None = None
    #: Times of epochs if the logs record no steps; None otherwise.
    epoch_times: EpochTimes | None = None
    #: The series of step times if logs only have lines about steps; None otherwise.
    printed: PrintedSteps | None = None
    #: Rates of loaders run alone, and the rate that the run needs; None if no loader was measured.
    input_rates: InputRates | None = None
    #: What batches that were fetched ahead show; None without an input probe.
    input_probe: InputProbe | None = None
    #: The causes inside the steady steps, the costliest first.
    step_causes: StepCauses = field(default_factory=StepCauses)
    #: What the job trains in each unit that is known, the finest first.
    amounts: tuple[Amount, ...] = ()
    #: How the job hangs; None if it does not hang.
    stopped: Stopped | None = None
    #: The share of time in steps that count, and the losses; None without stages.
    goodput: Goodput | None = None
    #: The generations with steps, in the order in which they began.
    generations: tuple[GenerationSummary, ...] = ()

    @cached_property
    def generation_ledgers(self) -> tuple[GenerationLedger, ...]:
        """Return the ledgers of the generations, in the order in which they began.

        With several generations, make them on demand: ``ledger`` only has those like the last one.
        """
        if len(self.generations) > 1:
            return ledgers_of_generations(self.run)
        ledger = self.ledger
        if ledger is None or not len(ledger) or not ledger.ranks:
            return ()
        return (
            GenerationLedger(
                number=self.generations[0].number if self.generations else 0,
                size=self.run.size,
                clocks=self.clocks,
                hosts=tuple(rank.host for rank in self.ranks),
                clock_uncertainty_ms=tuple(rank.clock_uncertainty_ms for rank in self.ranks),
                to_wall=0,
                ledger=ledger,
                warm_up=self.warm_up,
                steady=self.steady,
            ),
        )

    @property
    def further_findings(self) -> tuple[Finding, ...]:
        """Return the findings that the verdict does not state."""
        stated = self.bottleneck.evidence
        return tuple(finding for finding in self.findings if finding.evidence not in stated)

    @property
    def why_no_stages(self) -> str:
        """Say why the stages of steps are not known; for a run that has none."""
        printed = self.printed
        if printed is None or printed.recorded or self.bottleneck.kind == "insufficient_data":
            return self.bottleneck.evidence
        return (
            "These logs record how long steps took, but not the stages of each rank and step: they are "
            f"{self.run.fact('known_from')}."
        )

    @property
    def steps(self) -> int:
        """Return the number of steps that any rank recorded, or that printed lines are about."""
        printed = self.printed
        if printed is not None and not printed.recorded:
            return printed.steps
        return self.coverage.steps

    @property
    def step_ms(self) -> Mean | None:
        """Return the mean step with its interval, milliseconds; None without steps."""
        return None if self.step is None else Mean(self.step.mean, self.step.ci95)

    def amount(self, unit: WorkUnit) -> Amount | None:
        """Return what the job trains in a unit; None if that is unknown."""
        return next((amount for amount in self.amounts if amount.unit == unit), None)

    @property
    def tokens_per_second(self) -> Mean | None:
        """Return the throughput of all ranks in tokens, without padding; None if unknown."""
        tokens = self.amount("token")
        return None if tokens is None else tokens.per_second

    def entry_ms(self, name: str) -> Mean | None:
        """Return the mean of an entry of the ledger with its interval, milliseconds."""
        entry = self.entry(name)
        return None if entry is None else Mean(entry.ms, entry.ci95_ms)

    def entry(self, name: str) -> LedgerEntry | None:
        """Return an entry of the ledger by its name."""
        return next((entry for entry in self.entries if entry.name == name), None)

    @property
    def waiting_unknown(self) -> bool:
        """Whether allreduce may contain waiting for ranks whose logs are missing or too short."""
        return bool(self.run.unknown_ranks)

    def cause(self, name: str) -> CauseEntry | None:
        """Return an entry of the ledger by cause, by its name."""
        return next((entry for entry in self.by_cause if entry.name == name), None)


def with_amounts(analysis: Analysis) -> Analysis:
    """Return the analysis with what the job trains."""
    step_ms, padding = analysis.step_ms, analysis.step_causes.padding
    known = amounts(analysis.run, analysis.steady, step_ms, analysis.samples_per_second, padding)
    return replace(analysis, amounts=known)


# -- Summarise the generations of a run: its sets of ranks between two changes of membership ------


@dataclass(frozen=True)
class GenerationSummary:
    """One generation of a run, with its own ledger, stragglers and findings."""

    number: int
    size: int
    #: In the order of the ranks with a log.
    hosts: tuple[str, ...]
    #: The start of its first step, and the end of its last one, in UTC; None if unknown.
    started_at: datetime | None
    ended_at: datetime | None
    steps: int
    #: The number of steps that a later generation trained again; None if unknown.
    repeated_steps: int | None
    #: ``completed``, ``resized``, ``restarted``, ``killed`` or ``stopped``; None while it may still run.
    ended_by: str | None
    step: StepTime | None
    entries: tuple[LedgerEntry, ...]
    by_cause: tuple[CauseEntry, ...]
    bottleneck: Bottleneck
    stragglers: tuple[Straggler, ...]
    findings: tuple[Finding, ...]
    changes: tuple[ChangePoint, ...]

    @property
    def host_names(self) -> list[str]:
        """Return each host once."""
        return sorted(set(self.hosts))


@dataclass(frozen=True)
class GenerationLedger:
    """The ledger of one generation, with at least one step."""

    number: int
    size: int
    clocks: ClockSummary | None
    #: The host of each rank in the ledger, and the uncertainty of its clock.
    hosts: tuple[str, ...]
    clock_uncertainty_ms: tuple[float, ...]
    #: Nanoseconds to add to the ledger's times to get wall time; 0 if unknown.
    to_wall: int
    ledger: Ledger
    #: Whether each step of the ledger is not steady, and the steady steps; None if nothing is left.
    warm_up: Bools
    steady: Ledger | None

    @cached_property
    def late_steps(self) -> Ints:
        """Return the positions of steady steps in which the last rank is unusually late."""
        if self.steady is None:
            return np.zeros(0, np.int64)
        imbalance = self.steady.imbalance.astype(np.float64)
        # Compare with nearby steps, so that a rank that becomes slow for good is not unusual ever after.
        over = imbalance - running_median(imbalance, _WINDOW)
        smallest = _SMALLEST_SHARE * float(np.median(self.steady.total))
        late = over > max(_LATE_SDS * robust_sd(over), smallest)
        return np.asarray(np.flatnonzero(~self.warm_up)[late])


def ledgers_of_generations(run: Run) -> tuple[GenerationLedger, ...]:
    """Make the ledgers of all generations of a run from its steps."""
    generations = Generations.of(run)
    return tuple(_ledger_of(run, generations, index) for index in generations.filled)


def _ledger_of(run: Run, generations: Generations, index: int) -> GenerationLedger:
    aligned, ledger, warm_up = (
        generations.aligned[index],
        generations.ledgers[index],
        generations.unsteady[index],
    )
    return GenerationLedger(
        number=aligned.generation,
        size=run.size_of(aligned.generation),
        clocks=clock_summary(aligned),
        hosts=aligned.hosts,
        clock_uncertainty_ms=tuple((aligned.clocks.uncertainty / 1e6).tolist()),
        to_wall=generations.to_wall[index],
        ledger=ledger,
        warm_up=warm_up,
        steady=steady_of(ledger, warm_up),
    )


def run_of_generation(run: Run, number: int) -> Run:
    """Return the part of a run that belongs to one generation."""
    kept = [index for index, log in enumerate(run.logs) if log.generation == number]
    log_numbers = np.full(len(run.logs), -1)
    log_numbers[kept] = np.arange(len(kept))
    intervals = run.intervals.filter(arrow.equal(run.intervals["generation"], number))
    return Run(
        run.id,
        run.source,
        tuple(run.logs[index] for index in kept),
        _steps_of_generation(run.steps, number, log_numbers),
        with_log_numbers(intervals, log_numbers),
        events=run.events,
    )


def _steps_of_generation(
    steps: pa.Table | RemoteTable, number: int, log_numbers: Ints
) -> pa.Table | RemoteTable:
    if isinstance(steps, RemoteTable):
        return steps.as_run_of_generation(number, log_numbers)
    return with_log_numbers(of_generation(steps, number), log_numbers)


def lifetime(generations: Generations, index: int) -> tuple[datetime | None, datetime | None]:
    """Return when the first step of a generation began and when its last one ended, in UTC."""
    aligned, to_wall = generations.aligned[index], generations.to_wall[index]
    begins, ends = (
        aligned.cells.rows(name, np.array([at]))
        for name, at in (("begin", 0), ("end", len(aligned.steps) - 1))
    )
    first, last = (times[times != NULL] for times in (begins, ends))
    if not to_wall or not len(first) or not len(last):
        return None, None
    moments = (int(first.min()) + to_wall, int(last.max()) + to_wall)
    began, ended = (datetime.fromtimestamp(ns / 1e9, tz=UTC) for ns in moments)
    return began, ended


def repeated_steps(generations: Generations, index: int) -> int | None:
    """Count the steps of a generation that a later one trained again; None if unknown."""
    if generations.repeats_unknown(index):
        return None
    return int((generations.aligned[index].steps >= generations.again_from[index]).sum())


def ended_by(run: Run, aligned: Sequence[AlignedSteps], index: int, stopped: bool) -> str | None:
    """Return how a generation ended."""
    if index == len(aligned) - 1:
        if stopped:
            return "stopped"
        return "completed" if run.status == "completed" else None
    current, following = aligned[index], aligned[index + 1]
    if not all(log.ended for log in run.last_logs_of(current.generation).values()):
        return "killed"
    resized = run.size_of(current.generation) != run.size_of(following.generation)
    return "resized" if resized else "restarted"


def differ(amounts: Sequence[Mean]) -> bool:
    """Whether runs have another amount of work than the first one: by 2 %, and by more than chance.

    Of 1,000 series of equal runs with random batches, two do by chance.
    """
    pairs = len(amounts) - 1
    wider = normal_quantile(1 - _BY_CHANCE / 2 / max(pairs, 1)) / normal_quantile(0.975)
    for amount in amounts[1:]:
        times = amount.over(amounts[0])
        half = 0.0 if times.ci95 is None else (times.ci95[1] - times.ci95[0]) / 2 * wider
        if abs(times.value - 1) > max(_SAME_WORK, half):
            return True
    return False

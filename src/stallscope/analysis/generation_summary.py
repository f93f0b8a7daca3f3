"""Summarise the generations of a run: its sets of ranks between two changes of membership."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property

import numpy as np
import pyarrow as pa

from stallscope.arrays import arrow
from stallscope.arrays.blocks import NULL
from stallscope.arrays.medians import running_median
from stallscope.arrays.pivot import of_generation, with_log_numbers
from stallscope.arrays.remote_table import RemoteTable
from stallscope.arrays.stats import robust_sd
from stallscope.arrays.types import Bools, Ints
from stallscope.run import Run

from .findings.finding import Finding
from .gains.bottleneck import Bottleneck
from .ledger.change_points import ChangePoint
from .ledger.entries import CauseEntry, LedgerEntry
from .ledger.figures import StepTime, clock_summary
from .ledger.generations import Generations, steady_of
from .ledger.ledger import Ledger
from .steps.alignment import AlignedSteps
from .steps.clocks import ClockSummary
from .stragglers.straggler import Straggler

# A step is late if its last rank is later than chance and its usual lateness explain.
_LATE_SDS = 6.0
_SMALLEST_SHARE = 0.05
_WINDOW = 51


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
    #: Whether each step of the ledger is warm-up, and the ledger without warm-up; None if nothing is
    #: left.
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
        generations.warm[index],
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

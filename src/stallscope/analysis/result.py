"""What an analysis finds: the one object that dashboard, reports and exports show."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

from stallscope.run import Run

from .communication import Communication
from .epochs import EpochTimes
from .input_times import InputRates
from .job_time import JobTime
from .ledger import Ledger
from .stats import Mean
from .what_if import WhatIf

Severity = Literal["info", "warning", "error"]

#: Entries of the ledger, in the order in which a step goes through them.
ENTRIES = ("input", "compute", "other", "imbalance", "allreduce")
#: Entries of the ledger by cause.
CAUSES = ("input", "compute", "other", "allreduce")


@dataclass(frozen=True)
class LedgerEntry:
    """One entry of the ledger: its mean over the steady steps. Excess is over the baseline's."""

    name: str
    ms: float
    #: Fraction of the step time.
    share: float
    ci95_ms: tuple[float, float] | None
    baseline_ms: float | None = None
    excess_ms: float | None = None
    excess_ci95_ms: tuple[float, float] | None = None
    #: The same of the run on one rank.
    single_ms: float | None = None


@dataclass(frozen=True)
class CauseEntry(LedgerEntry):
    """One entry of the ledger by cause: the critical rank's own stage, or exposed allreduce.

    ``waiting_ms`` of it are what the critical rank's stage takes longer than the reference rank's:
    the time that the other ranks wait for it. It is negative where the critical rank's is shorter, and
    None where a single rank's log of many cannot show it.
    """

    waiting_ms: float | None = 0.0


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
    """One rank's own means over the steady steps, milliseconds; None where not measured."""

    rank: int
    host: str
    input_ms: float | None
    compute_ms: float | None
    wait_ms: float | None
    allreduce_ms: float | None
    other_ms: float | None
    critical_share: float | None
    clock_offset_ms: float
    clock_uncertainty_ms: float


@dataclass(frozen=True)
class Straggler:
    """A straggler, or lateness that varies from step to step and names no rank.

    ``pattern``: ``persistent``, ``ramp`` (ever slower), ``bursts`` (at times, on these ranks more
    than chance allows) or ``rotating`` (at times, on any rank: ``ranks`` and ``hosts`` are empty).
    """

    pattern: str
    ranks: tuple[int, ...]
    hosts: tuple[str, ...]
    stage: str
    #: By how much the stage takes longer than its peers': over all steps, or over the late ones where
    #: the rank is late at times.
    excess_ms: Mean
    #: The share of steps in which one of them came last, or was late where that is at times.
    late_share: float
    #: What it costs per step, on average: what would be saved without it.
    cost_ms: Mean
    #: How many times its peers' samples a rank works through per step, where it is more: then it has
    #: more to do, and is not slower.
    work: float | None = None

    @property
    def fixes(self) -> tuple[str, ...]:
        """The names of the fixes that answer it: ``host:NAME`` or ``rank:3``; none where it rotates."""
        of_hosts = tuple(f"host:{host}" for host in self.hosts)
        return of_hosts or tuple(f"rank:{rank}" for rank in self.ranks)

    @property
    def counts_as_imbalance(self) -> bool:
        """Whether it has a fix of its own; loaders that stall in turn are fixed as input."""
        return self.pattern != "rotating" or self.stage == "compute"


@dataclass(frozen=True)
class Bottleneck:
    """The verdict. ``ranks`` and ``hosts`` are named only where the lap test names them.

    ``fault`` tells a fault from a healthy run, of which ``kind`` is the largest part that could shrink.
    """

    kind: str
    cause: str | None
    evidence: str
    ranks: tuple[int, ...] = ()
    hosts: tuple[str, ...] = ()
    advice: tuple[str, ...] = ()
    fault: bool = False


@dataclass(frozen=True)
class Finding:
    """Something about the run that its owner should know."""

    code: str
    severity: Severity
    title: str
    evidence: str
    advice: str


@dataclass(frozen=True)
class Coverage:
    """Of how many steps the ledger is made."""

    steps: int
    #: Steps that every rank measured, and those that a few of many ranks lack.
    complete: int
    partial: int
    #: Steps that were not to be recorded one by one, in a run of which some steps stand for all.
    sampled_out: int = 0

    @property
    def unused(self) -> int:
        """Steps that are not in the ledger, and should be."""
        return self.steps - self.complete - self.partial - self.sampled_out


@dataclass(frozen=True)
class ClockSummary:
    """How the clocks of the hosts were brought together, and how well that held."""

    method: str
    #: Completion skew among ranks that share a clock, which offsets between hosts may hide, ms; None
    #: where every host has one rank and it cannot be seen.
    skew_ms: float | None
    #: Skew between hosts, which offsets hide, is no larger than this (causality); None on one clock.
    skew_bound_ms: float | None
    #: Clocks that were set in the middle of the run: the clock, the step, and by how many ms.
    jumps: tuple[tuple[str, int, float], ...]
    #: The share of steps in which a rank was reduced before the last one was ready.
    violations: float
    #: The share of steps in which a timestamp came late and was moved to the latest moment that
    #: causality allows; by how much, milliseconds per step; and per rank, in which share of steps.
    late: float = 0.0
    late_ms: float = 0.0
    late_by_rank: tuple[float, ...] = ()


@dataclass(frozen=True)
class ChangePoint:
    """A step at which step time changed for good, and what changed most."""

    step: int
    before_ms: float
    after_ms: float
    #: The entry of the ledger that changed most, and by how much.
    entry: str
    by_ms: float
    #: The rank that is critical after it where most of it is imbalance; None otherwise.
    rank: int | None


@dataclass(frozen=True)
class Decomposition:
    """Where the step goes between one rank, N ranks on synthetic data and N ranks on real data.

    Milliseconds per step, each with its interval. By cause, real − synthetic is exactly the sum of four
    differences: input stall, compute, other and allreduce. Synthetic − single is what scale costs.
    """

    #: Real − synthetic.
    loss: Mean
    input_stall: Mean
    compute: Mean
    other: Mean
    allreduce: Mean
    #: Imbalance and exposed allreduce of the synthetic run.
    communication: Mean
    #: Synthetic on N ranks − synthetic on one; None without a run on one rank.
    scale: Mean | None


@dataclass(frozen=True)
class BaselineMatch:
    """Which facts a run and its baseline share, and which they do not."""

    same: tuple[str, ...]
    differs: tuple[str, ...]


@dataclass(frozen=True)
class Analysis:
    """A run, taken apart."""

    run: Run
    job: JobTime
    step: StepTime | None
    entries: tuple[LedgerEntry, ...]
    by_cause: tuple[CauseEntry, ...]
    ranks: tuple[RankSummary, ...]
    bottleneck: Bottleneck
    stragglers: tuple[Straggler, ...]
    what_if: tuple[WhatIf, ...]
    #: What gains of fixes are predicted from: a matching ``baseline``, or the ``run`` alone.
    predicted_from: Literal["baseline", "run"]
    findings: tuple[Finding, ...]
    warnings: tuple[str, ...]
    samples_per_second: float | None
    epochs: int
    coverage: Coverage
    clocks: ClockSummary | None
    changes: tuple[ChangePoint, ...]
    communication: Communication | None
    #: All steps in the ledger, warm-up included; None where timestamps are missing.
    ledger: Ledger | None = field(repr=False)
    #: Per step of the ledger: whether it is warm-up.
    warm_up: npt.NDArray[np.bool_] = field(repr=False)
    #: The ledger without warm-up; None where nothing is left.
    steady: Ledger | None = field(repr=False)
    baseline: Analysis | None = field(default=None, repr=False)
    match: BaselineMatch | None = None
    #: Fraction of the baseline's throughput that is lost.
    gap: float | None = None
    gap_ci95: tuple[float, float] | None = None
    #: The same job on synthetic data and one rank.
    single: Analysis | None = field(default=None, repr=False)
    decomposition: Decomposition | None = None
    #: Where the logs know epochs only: what they tell; None where they have steps.
    epoch_times: EpochTimes | None = None
    #: What loaders give alone, and what the run needs; None where none was measured.
    input_rates: InputRates | None = None

    @property
    def steps(self) -> int:
        """Steps that any rank recorded."""
        return self.coverage.steps

    def entry(self, name: str) -> LedgerEntry | None:
        return next((entry for entry in self.entries if entry.name == name), None)

    @property
    def waiting_unseen(self) -> bool:
        """Whether allreduce may be waiting for ranks whose logs are missing."""
        return bool(self.run.missing_ranks)

    def cause(self, name: str) -> CauseEntry | None:
        return next((entry for entry in self.by_cause if entry.name == name), None)

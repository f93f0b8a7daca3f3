"""What an analysis finds: the one object that dashboard, reports and exports show."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

from stallscope.run import Run

from .findings.finding import Finding
from .gains.baseline import BaselineMatch, Decomposition
from .gains.bottleneck import Bottleneck
from .gains.input_times import InputRates
from .gains.what_if import WhatIf
from .ledger.change_points import ChangePoint
from .ledger.entries import CauseEntry, LedgerEntry
from .ledger.epochs import EpochTimes
from .ledger.job_time import JobTime
from .ledger.ledger import Ledger
from .network.communication import Communication
from .steps.clocks import ClockSummary
from .stragglers.straggler import Straggler


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

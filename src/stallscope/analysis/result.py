"""Define the result of an analysis, which dashboard, reports and exports show."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt

from stallscope.arrays.stats import Mean
from stallscope.run import Run

from .findings.finding import Finding
from .gains.baseline import BaselineMatch, Decomposition
from .gains.bottleneck import Bottleneck
from .gains.input_times import InputRates
from .gains.what_if import WhatIf
from .generation_summary import GenerationLedger, GenerationSummary, ledgers_of_generations
from .ledger.change_points import ChangePoint
from .ledger.entries import CauseEntry, LedgerEntry
from .ledger.epochs import EpochTimes
from .ledger.figures import Coverage, RankSummary, StepTime
from .ledger.goodput import Goodput
from .ledger.job_time import JobTime
from .ledger.ledger import Ledger
from .ledger.printed_steps import PrintedSteps
from .network.communication import Communication
from .network.network_check import NetworkUse
from .steps.clocks import ClockSummary
from .steps.links import Link
from .stopped.stopped import Stopped
from .stragglers.straggler import Straggler


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
    #: Whether each step of the ledger is warm-up.
    warm_up: npt.NDArray[np.bool_] = field(repr=False)
    #: The ledger without warm-up; None if nothing is left.
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
    def steps(self) -> int:
        """Return the number of steps that any rank recorded."""
        return self.coverage.steps

    @property
    def step_ms(self) -> Mean | None:
        """Return the mean step with its interval, milliseconds; None without steps."""
        return None if self.step is None else Mean(self.step.mean, self.step.ci95)

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

"""What an analysis finds: the one object that dashboard, reports and exports show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from stallscope.run import Run

from .job_time import JobTime
from .ledger import Ledger
from .what_if import WhatIf

Severity = Literal["info", "warning", "error"]

#: Entries of the ledger, in the order in which a step goes through them.
ENTRIES = ("input", "compute", "other", "imbalance", "allreduce")


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
class Bottleneck:
    """The verdict. ``ranks`` and ``hosts`` are named only where the lap test names them."""

    kind: str
    cause: str | None
    evidence: str
    ranks: tuple[int, ...] = ()
    hosts: tuple[str, ...] = ()
    advice: tuple[str, ...] = ()


@dataclass(frozen=True)
class Finding:
    """Something about the run that its owner should know."""

    code: str
    severity: Severity
    title: str
    evidence: str
    advice: str


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
    ranks: tuple[RankSummary, ...]
    bottleneck: Bottleneck
    what_if: tuple[WhatIf, ...]
    findings: tuple[Finding, ...]
    warnings: tuple[str, ...]
    samples_per_second: float | None
    epochs: int
    steps: int
    #: All steps in the ledger, warm-up included; None where stamps are missing.
    ledger: Ledger | None = field(repr=False)
    #: Per step of the ledger: whether it is warm-up.
    warm_up: npt.NDArray[np.bool_] = field(repr=False)
    baseline: Analysis | None = field(default=None, repr=False)
    match: BaselineMatch | None = None
    #: Fraction of the baseline's throughput that is lost.
    gap: float | None = None

    @cached_property
    def steady(self) -> Ledger | None:
        """The ledger without warm-up; None where nothing is left."""
        steady = None if self.ledger is None else self.ledger.take(~self.warm_up)
        return steady if steady is not None and len(steady) else None

    def entry(self, name: str) -> LedgerEntry | None:
        return next((entry for entry in self.entries if entry.name == name), None)


def concatenated(ledgers: Sequence[Ledger]) -> Ledger | None:
    """Ledgers of generations with the same ranks, one after the other; the last ones where they differ.

    A job whose world changed its size has no per-rank figures across that change.
    """
    filled = [ledger for ledger in ledgers if len(ledger)]
    if not filled:
        return None
    same = [ledger for ledger in filled if ledger.ranks == filled[-1].ranks]
    if len(same) == 1:
        return same[0]
    values: dict[str, Any] = {
        name: np.concatenate([getattr(ledger, name) for ledger in same])
        if isinstance(value, np.ndarray)
        else value
        for name, value in vars(same[-1]).items()
    }
    return Ledger(**values)

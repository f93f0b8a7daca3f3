"""Entries of both ledgers: means over the steady steps, compared with baselines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from stallscope.arrays.stats import Mean

from .ledger import CAUSES, ENTRIES, STAGES, Ledger


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


def waiting_part(entry: CauseEntry) -> float:
    """Give the milliseconds of a stage that other ranks wait for; never negative."""
    return min(max(entry.waiting_ms or 0.0, 0.0), max(entry.ms, 0.0))


def ledger_entries(
    steady: Ledger,
    base: Sequence[LedgerEntry],
    alone: Sequence[LedgerEntry],
    waiting_seen: bool,
) -> tuple[LedgerEntry, ...]:
    """Make the entries of the ledger with imbalance, compared with the baseline and one rank.

    Args:
        steady: steady steps.
        base: the same entries of the baseline; empty without one.
        alone: the same entries of the run on one rank; empty without one.
        waiting_seen: False where a single rank's log of many cannot show the imbalance, which is
            left out then.
    """
    return tuple(
        LedgerEntry(
            **_entry(
                steady,
                steady.mean_ms(name),
                _named(name, base),
                _named(name, alone),
            ),
            name=name,
        )
        for name in ENTRIES
        if waiting_seen or name != "imbalance"
    )


def cause_entries(
    steady: Ledger,
    base: Sequence[LedgerEntry],
    alone: Sequence[LedgerEntry],
    waiting_seen: bool,
) -> tuple[CauseEntry, ...]:
    """Make the entries of the ledger by cause; see ``ledger_entries`` for the arguments."""
    return tuple(
        CauseEntry(
            **_entry(
                steady,
                steady.mean_ms(name, by_cause=True),
                _named(name, base),
                _named(name, alone),
            ),
            name=name,
            waiting_ms=_waiting_ms(steady, name) if waiting_seen else None,
        )
        for name in CAUSES
    )


def _named(name: str, entries: Sequence[LedgerEntry]) -> LedgerEntry | None:
    return next((entry for entry in entries if entry.name == name), None)


def _waiting_ms(steady: Ledger, name: str) -> float:
    return float(steady.excess(name).mean()) / 1e6 if name in STAGES else 0.0


def _entry(
    steady: Ledger, mean: Mean, base: LedgerEntry | None, alone: LedgerEntry | None
) -> dict[str, Any]:
    """Compute the fields that the entries of both ledgers share."""
    step = float(steady.total.mean()) / 1e6
    excess = None if base is None else mean.minus(Mean(base.ms, base.ci95_ms))
    return {
        "ms": mean.value,
        "share": mean.value / step if step else 0.0,
        "ci95_ms": mean.ci95,
        "baseline_ms": None if base is None else base.ms,
        "excess_ms": None if excess is None else excess.value,
        "excess_ci95_ms": None if excess is None else excess.ci95,
        "single_ms": None if alone is None else alone.ms,
    }

"""Make the entries of both ledgers: means over the steady steps, compared with baselines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from stallscope.arrays.stats import Mean
from stallscope.words import CAUSES, ENTRIES, STAGES, LedgerPart, PartByCause

from .ledger import Ledger


@dataclass(frozen=True)
class LedgerEntry:
    """One entry of the ledger: its mean over the steady steps. Excess is over the baseline's."""

    name: LedgerPart
    ms: float
    #: Fraction of the step time.
    share: float
    ci95_ms: tuple[float, float] | None
    baseline_ms: float | None = None
    excess_ms: float | None = None
    excess_ci95_ms: tuple[float, float] | None = None
    #: The same entry of the run on one rank.
    single_ms: float | None = None


@dataclass(frozen=True)
class CauseEntry(LedgerEntry):
    """One entry of the ledger by cause: the critical rank's own stage, or exposed allreduce.

    ``waiting_ms`` is how much longer the critical rank's stage takes than the reference rank's: the time
    that the other ranks wait for it. It is negative if the critical rank's stage is shorter, and None if
    only one of several ranks has a log.
    """

    name: PartByCause
    waiting_ms: float | None = 0.0


def waiting_part(entry: CauseEntry) -> float:
    """Return the milliseconds of a stage that other ranks wait for; never negative."""
    return min(max(entry.waiting_ms or 0.0, 0.0), max(entry.ms, 0.0))


def ledger_entries(
    steady: Ledger,
    base: Sequence[LedgerEntry],
    alone: Sequence[LedgerEntry],
    waiting_known: bool,
) -> tuple[LedgerEntry, ...]:
    """Make the entries of the ledger with imbalance, compared with the baseline and one rank.

    Args:
        steady: steady steps.
        base: the same entries of the baseline; empty without one.
        alone: the same entries of the run on one rank; empty without one.
        waiting_known: False if only one of several ranks has a log: then imbalance is left out.
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
        if waiting_known or name != "imbalance"
    )


def cause_entries(
    steady: Ledger,
    base: Sequence[LedgerEntry],
    alone: Sequence[LedgerEntry],
    waiting_known: bool,
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
            waiting_ms=_waiting_ms(steady, name) if waiting_known else None,
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

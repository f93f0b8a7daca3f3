"""Entries of both ledgers: means over the steady steps, held against baselines."""

from __future__ import annotations

from typing import Any

from .ledger import STAGES, Ledger
from .result import CAUSES, ENTRIES, Analysis, CauseEntry, LedgerEntry
from .stats import Mean


def ledger_entries(
    steady: Ledger, base: Analysis | None, alone: Analysis | None, waiting_seen: bool
) -> tuple[LedgerEntry, ...]:
    """Make the entries of the ledger with imbalance, held against the baseline and one rank.

    The imbalance is left out where a single rank's log of many cannot show it.
    """
    return tuple(
        LedgerEntry(
            **_entry(
                steady,
                steady.mean_ms(name),
                None if base is None else base.entry(name),
                None if alone is None else alone.entry(name),
            ),
            name=name,
        )
        for name in ENTRIES
        if waiting_seen or name != "imbalance"
    )


def cause_entries(
    steady: Ledger, base: Analysis | None, alone: Analysis | None, waiting_seen: bool
) -> tuple[CauseEntry, ...]:
    """Make the entries of the ledger by cause, held against the baseline and one rank."""
    return tuple(
        CauseEntry(
            **_entry(
                steady,
                steady.mean_ms(name, by_cause=True),
                None if base is None else base.cause(name),
                None if alone is None else alone.cause(name),
            ),
            name=name,
            waiting_ms=_waiting_ms(steady, name) if waiting_seen else None,
        )
        for name in CAUSES
    )


def _waiting_ms(steady: Ledger, name: str) -> float:
    return float(steady.excess(name).mean()) / 1e6 if name in STAGES else 0.0


def _entry(
    steady: Ledger, mean: Mean, base: LedgerEntry | None, alone: LedgerEntry | None
) -> dict[str, Any]:
    """Compute what entries of both ledgers have, but for their names."""
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

"""Compute the cost of waiting over the run, and whether the steps suffice to name a rank."""

from __future__ import annotations

from stallscope.arrays.stats import Mean, evenly

from ..ledger.ledger import Ledger
from .lap_test import slow_ranks

_MS_PER_HOUR = 3_600_000.0
# This many ranks show the autocorrelation time of laps.
_SOME_RANKS = 64


def rank_hours(cost_ms: Mean, steps: int, ranks: int) -> Mean:
    """Return the hours of all ranks together that a cost per step adds up to."""
    return cost_ms.scaled(steps * ranks / _MS_PER_HOUR)


def enough_to_name(ledger: Ledger) -> bool:
    """Whether there are enough steps to distinguish a slow rank from chance."""
    some = evenly(len(ledger.ranks), _SOME_RANKS)
    return not slow_ranks(ledger, some.tolist()).too_few_steps

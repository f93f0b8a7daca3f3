"""Waiting for other ranks that is input in truth."""

from __future__ import annotations

from collections.abc import Iterator

from ..ledger.ledger import Ledger
from .finding import Finding

# What is less of the step need not be explained.
_WORTH = 0.05


def ranks_starve_in_turn(at_work_ms: float, ledger: Ledger) -> Iterator[Finding]:
    """That the ledger's imbalance holds so many milliseconds in which loaders were at work."""
    if at_work_ms < _WORTH * float(ledger.total.mean()) / 1e6:
        return
    imbalance = float(ledger.imbalance.mean()) / 1e6
    yield Finding(
        "ranks_starve_in_turn",
        "info",
        "Imbalance caused by slow input",
        f"{at_work_ms:.1f} of {imbalance:.1f} ms of imbalance per step: ranks that waited for another "
        "one's later batch had loaders at work themselves. Which rank's batch arrives first is random.",
        "Read input and imbalance together: faster loaders on all ranks end both, and another "
        "machine for the rank that comes last ends neither.",
    )

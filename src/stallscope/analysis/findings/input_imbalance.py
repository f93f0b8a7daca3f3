"""Find imbalance that slow input causes."""

from __future__ import annotations

from collections.abc import Iterator

from ..ledger.ledger import Ledger
from .finding import Finding

# A smaller share of the step needs no explanation.
_WORTH = 0.05


def ranks_starve_in_turn(from_input_ms: float, ledger: Ledger) -> Iterator[Finding]:
    """Find imbalance during which the waiting ranks' loaders worked.

    Args:
        from_input_ms: this imbalance, milliseconds per step.
        ledger: steady steps.
    """
    if from_input_ms < _WORTH * float(ledger.total.mean()) / 1e6:
        return
    imbalance = float(ledger.imbalance.mean()) / 1e6
    yield Finding(
        "ranks_starve_in_turn",
        "info",
        "Imbalance caused by slow input",
        f"{from_input_ms:.1f} of {imbalance:.1f} ms of imbalance per step: ranks waited for another "
        "rank's batch while their own loaders worked. Which rank's batch arrives first is random.",
        "Consider input and imbalance together: faster loaders on all ranks fix both, and another "
        "machine for the last rank fixes neither.",
    )

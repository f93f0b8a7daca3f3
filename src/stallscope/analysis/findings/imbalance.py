"""Find imbalance with a known reason: extra work of rank 0, and slow input on all ranks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from stallscope.formatting.numbers import percent

from ..ledger.ledger import Ledger
from ..stragglers.straggler import Straggler
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
        "Waiting caused by slow input",
        f"In {from_input_ms:.1f} of the {imbalance:.1f} ms that ranks wait per step, they wait for "
        "another rank's batch while their own loaders work. Which rank's batch arrives first is random.",
        "Consider input and waiting together: faster loaders on all ranks fix both, and another "
        "machine for the last rank fixes neither.",
    )


def rank_0_extra_work(stragglers: Sequence[Straggler]) -> Iterator[Finding]:
    """Find extra work of rank 0 between steps, which is rarely a hardware fault."""
    for straggler in stragglers:
        if straggler.ranks == (0,) and straggler.stage == "other":
            yield Finding(
                "rank_0_extra_work",
                "warning",
                "Rank 0 does extra work between steps",
                f"It takes {straggler.excess_ms.value:.1f} ms longer than its peers between steps, in "
                f"{percent(straggler.late_share)} of them; all ranks wait "
                f"{straggler.cost_ms.value:.1f} ms per step for it.",
                "Callbacks that run on rank 0 only (logging, summaries, progress, checkpoints) make all "
                "other ranks wait: do less in them, less often, or on a thread.",
            )

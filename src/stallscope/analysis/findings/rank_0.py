"""What only rank 0 does in every step: summaries, metrics, progress, checkpoints in callbacks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..stragglers.straggler import Straggler
from .finding import Finding


def rank_0_extra_work(stragglers: Sequence[Straggler]) -> Iterator[Finding]:
    """Rank 0 is named, for work between steps: that is rarely the hardware's fault."""
    for one in stragglers:
        if one.ranks == (0,) and one.stage == "other":
            yield Finding(
                "rank_0_extra_work",
                "warning",
                "Rank 0 does extra work between steps",
                f"{one.excess_ms.value:.1f} ms more than the others' between its steps, in "
                f"{one.late_share:.0%} of them; all ranks wait {one.cost_ms.value:.1f} ms per step "
                "for it.",
                "Callbacks that are added on rank 0 only (logging, summaries, progress, checkpoints) "
                "run while all others wait: do less of it, less often, or on a thread.",
            )

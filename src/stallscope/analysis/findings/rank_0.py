"""Find extra work of rank 0 in every step: summaries, metrics, progress, checkpoints in callbacks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..stragglers.straggler import Straggler
from .finding import Finding


def rank_0_extra_work(stragglers: Sequence[Straggler]) -> Iterator[Finding]:
    """Find rank 0 among the stragglers in work between steps, which is rarely a hardware fault."""
    for one in stragglers:
        if one.ranks == (0,) and one.stage == "other":
            yield Finding(
                "rank_0_extra_work",
                "warning",
                "Rank 0 does extra work between steps",
                f"It takes {one.excess_ms.value:.1f} ms longer than its peers between steps, in "
                f"{one.late_share:.0%} of them; all ranks wait {one.cost_ms.value:.1f} ms per step "
                "for it.",
                "Callbacks that run on rank 0 only (logging, summaries, progress, checkpoints) make all "
                "other ranks wait: do less in them, less often, or on a thread.",
            )

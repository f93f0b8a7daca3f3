"""Find clocks that were set, and timestamps that contradict each other."""

from __future__ import annotations

from collections.abc import Iterator

from stallscope.formatting.numbers import amount

from ..steps.clocks import ClockSummary
from .finding import Finding

# Below this share of steps, timestamps delayed by busy cores are the more likely reason.
_WORTH_A_FINDING = 0.02
_MOST_JUMPS = 3


def clock_findings(clocks: ClockSummary) -> Iterator[Finding]:
    """Find problems with clocks that limit comparisons between hosts."""
    if clocks.jumps:
        shown = ", ".join(
            f"{clock} by {'+' if ms > 0 else '−'}{amount(abs(ms), 'ms')} at step {step:,}"
            for clock, step, ms in clocks.jumps[:_MOST_JUMPS]
        )
        more = len(clocks.jumps) - _MOST_JUMPS
        yield Finding(
            "clock_jumped",
            "warning",
            "A host's clock was set while the job ran",
            f"{shown}{f' and {more} more times' if more > 0 else ''}. The step in which it happened "
            "is left out for that host; clocks are aligned separately before and after it.",
            "Either a virtual machine was suspended, or the clock is not monotonic: check the host's "
            "time service.",
        )
    if clocks.violations > _WORTH_A_FINDING:
        yield Finding(
            "causality_broken",
            "warning",
            "Timestamps contradict each other",
            f"In {clocks.violations:.0%} of steps a rank completed the allreduce before the last rank "
            "was ready, which is impossible: clocks or timestamps are off by more than their "
            "uncertainty.",
            "Trust waiting and allreduce only where they exceed that error. The usual cause is "
            "overloaded cores, which delay timestamps.",
        )
    if clocks.method == "every step":
        yield Finding(
            "clocks_unsteady",
            "warning",
            "The hosts' clocks could not be aligned over time",
            "Offsets estimated from allreduce completions violated causality too often. Instead, "
            "completions are assumed to be simultaneous in every step, which needs no clocks.",
            "Do not trust small differences between hosts in this run.",
        )

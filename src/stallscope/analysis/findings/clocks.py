"""Clocks that were set, or that contradict themselves."""

from __future__ import annotations

from collections.abc import Iterator

from ..steps.clocks import ClockSummary
from .finding import Finding

# Below this share of steps, timestamps that came late on busy cores are the likelier reason.
_WORTH_A_FINDING = 0.02
_MOST_JUMPS = 3


def clock_findings(clocks: ClockSummary) -> Iterator[Finding]:
    """What is to be known before timelines of several hosts are compared."""
    if clocks.jumps:
        shown = ", ".join(
            f"{clock} by {ms:+.1f} ms at step {step}"
            for clock, step, ms in clocks.jumps[:_MOST_JUMPS]
        )
        more = len(clocks.jumps) - _MOST_JUMPS
        yield Finding(
            "clock_jumped",
            "warning",
            "A host's clock was set while the job ran",
            f"{shown}{f' and {more} more times' if more > 0 else ''}. The step in which it happened "
            "is left out for that host; before and after, clocks are aligned apart.",
            "A virtual machine that was suspended, or a monotonic clock that is none: look at the "
            "host's time service.",
        )
    if clocks.violations > _WORTH_A_FINDING:
        yield Finding(
            "causality_broken",
            "warning",
            "Timestamps contradict each other",
            f"In {clocks.violations:.0%} of steps a rank was reduced before the last rank was ready, "
            "which cannot be: clocks or timestamps are off by more than their uncertainty.",
            "Trust figures of waiting and allreduce only as far as they are larger than that; "
            "overloaded cores, which delay timestamps, are the usual reason.",
        )
    if clocks.method == "every step":
        yield Finding(
            "clocks_unsteady",
            "warning",
            "The hosts' clocks could not be followed",
            "Offsets from the completions of collectives broke causality too often; completions are "
            "taken as simultaneous in every step instead, which needs no clocks.",
            "Small differences between hosts are not to be trusted in this run.",
        )

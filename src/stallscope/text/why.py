"""Explain slow ranks with the machines' counters."""

from __future__ import annotations

from stallscope.analysis import Analysis
from stallscope.analysis.why.counted import was_counted

TITLE = "Why"
_NOTHING = (
    "Nothing that the kernel counts (throttling, cores, memory, disk) differs enough from the peers: "
    "the cause is in the program, or in a device."
)


def why(analysis: Analysis) -> tuple[str, ...]:
    """Return the reasons for the verdict, a sentence each; empty if nothing was counted."""
    bottleneck = analysis.bottleneck
    if bottleneck.why:
        return tuple(reason.text for reason in bottleneck.why)
    return (
        (_NOTHING,) if was_counted(analysis.run) and bottleneck.ranks and bottleneck.fault else ()
    )

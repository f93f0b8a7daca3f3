"""Say why ranks are slow, from what machines counted meanwhile."""

from __future__ import annotations

from stallscope.analysis import Analysis

TITLE = "Why"
# Every recorder that counts anything counts this.
_COUNTED = "process_cpu"
_NOTHING = (
    "Nothing that the kernel counts (throttling, cores, memory, disk) differs enough from the peers: "
    "the cause is in the program, or in a device."
)


def why(analysis: Analysis) -> tuple[str, ...]:
    """Return the reasons for the verdict, a sentence each; empty where nothing was counted."""
    bottleneck = analysis.bottleneck
    if bottleneck.why:
        return tuple(reason.text for reason in bottleneck.why)
    counted = any(one.name == _COUNTED for one in analysis.run.series)
    return (_NOTHING,) if counted and bottleneck.ranks and bottleneck.fault else ()

"""Define the verdict on a run: its bottleneck, and the reasons for it."""

from __future__ import annotations

from dataclasses import dataclass

from ..steps.links import Link


@dataclass(frozen=True)
class Reason:
    """A reason why a rank or a stage is slow: a count that differs from the peers'."""

    #: ``throttled``, ``other_processes``, ``stolen_cores``, ``memory``, ``disk``, ``more_cpu_time``, ….
    code: str
    #: A sentence.
    text: str
    ranks: tuple[int, ...]
    #: Set if whole hosts were counted.
    hosts: tuple[str, ...]
    #: The counted quantity, and its unit.
    quantity: str
    unit: str
    #: The name of its series over time.
    series: str
    #: Means over the steady steps: of these ranks or hosts, and of the median peer; None if all ranks
    #: have too large a value. For ranks that are late at times: while they are late, and at other times.
    value: float
    peers: float | None
    #: The 95 % interval of the difference, or of the value without peers. For ranks that are late at
    #: times: of the change of their difference from their peers.
    ci95: tuple[float, float]
    while_late: bool = False


@dataclass(frozen=True)
class Bottleneck:
    """A verdict. ``ranks`` and ``hosts`` are set only if a test names them as slow.

    ``fault`` is False for a healthy run; ``kind`` is then the largest part that could shrink.
    """

    kind: str
    cause: str | None
    evidence: str
    ranks: tuple[int, ...] = ()
    hosts: tuple[str, ...] = ()
    advice: tuple[str, ...] = ()
    fault: bool = False
    #: Slow links between hosts, if these make communication slow.
    links: tuple[Link, ...] = ()
    #: Counts on the slow ranks, or on all of them, that explain it.
    why: tuple[Reason, ...] = ()

    @property
    def healthy(self) -> bool:
        """Whether the logs suffice for a verdict, and show no fault."""
        return not self.fault and self.kind != "insufficient_data"

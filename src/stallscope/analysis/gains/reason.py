"""A reason why a rank or a stage is slow."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Reason:
    """What was counted on slow ranks, and how it differs from their peers."""

    #: ``throttled``, ``other_processes``, ``stolen_cores``, ``memory``, ``disk``, ``more_cpu_time``, ….
    code: str
    #: A sentence.
    text: str
    ranks: tuple[int, ...]
    #: Set where the figures are of whole hosts.
    hosts: tuple[str, ...]
    #: What was counted, and its unit.
    quantity: str
    unit: str
    #: The name of the series that shows it over time.
    series: str
    #: The mean over the steady steps, of these ranks or hosts and of the median peer; None if there are
    #: no peers, and the value alone is too large. Of ranks that are late at times: the mean while they
    #: are late, and at other times.
    value: float
    peers: float | None
    #: The 95 % interval of the difference, or of the value where there are no peers. Of ranks that are
    #: late at times: of the change of their difference from their peers.
    ci95: tuple[float, float]
    while_late: bool = False

"""A straggler: the slow ranks, the stage, its excess, and its cost."""

from __future__ import annotations

from dataclasses import dataclass

from stallscope.arrays.stats import Mean


@dataclass(frozen=True)
class Straggler:
    """A straggler, or lateness that varies from step to step and names no rank.

    ``pattern``: ``persistent``, ``ramp`` (ever slower), ``bursts`` (at times, on these ranks more
    than chance allows) or ``rotating`` (at times, on any rank: ``ranks`` and ``hosts`` are empty).
    """

    pattern: str
    ranks: tuple[int, ...]
    hosts: tuple[str, ...]
    stage: str
    #: How much longer the stage takes than its peers': over all steps, or over the late ones if the
    #: rank is late at times.
    excess_ms: Mean
    #: The share of steps in which one of them came last, or was late if it is late at times.
    late_share: float
    #: The mean time per step that would be saved without it.
    cost_ms: Mean
    #: The ratio of the rank's samples per step to its peers', if it has more: then it has more work, and
    #: is not slower.
    work: float | None = None
    #: Whether the others wait for it. A slow rank may hide behind slower ones: it is hardly ever last,
    #: and fixing it alone saves nothing.
    holds_back: bool = True

    @property
    def fixes(self) -> tuple[str, ...]:
        """Return the names of its fixes: ``host:NAME`` or ``rank:3``; none if it varies."""
        of_hosts = tuple(f"host:{host}" for host in self.hosts)
        return of_hosts or tuple(f"rank:{rank}" for rank in self.ranks)

    @property
    def counts_as_imbalance(self) -> bool:
        """Whether it has a separate fix; loaders that stall in turn are fixed as input."""
        return self.pattern != "rotating" or self.stage == "compute"

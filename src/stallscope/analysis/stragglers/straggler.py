"""A straggler: which ranks are slow, in which stage, by how much, and what that costs."""

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
    #: By how much the stage takes longer than its peers': over all steps, or over the late ones where
    #: the rank is late at times.
    excess_ms: Mean
    #: The share of steps in which one of them came last, or was late where that is at times.
    late_share: float
    #: What it costs per step, on average: what would be saved without it.
    cost_ms: Mean
    #: How many times its peers' samples a rank works through per step, where it is more: then it has
    #: more to do, and is not slower.
    work: float | None = None

    @property
    def fixes(self) -> tuple[str, ...]:
        """The names of the fixes that answer it: ``host:NAME`` or ``rank:3``; none where it rotates."""
        of_hosts = tuple(f"host:{host}" for host in self.hosts)
        return of_hosts or tuple(f"rank:{rank}" for rank in self.ranks)

    @property
    def counts_as_imbalance(self) -> bool:
        """Whether it has a fix of its own; loaders that stall in turn are fixed as input."""
        return self.pattern != "rotating" or self.stage == "compute"

"""Write stragglers for tables."""

from __future__ import annotations

from stallscope.analysis.stragglers.straggler import Straggler
from stallscope.formatting.lists import listed
from stallscope.formatting.numbers import amount

#: Explains the columns, below every table of stragglers.
NOTE = (
    "By how much: over all steps; over the late ones where lateness is intermittent or varies from step "
    "to step. Share of steps: those in which it is last to be ready, or late. Costs: what a step would "
    "save without it, on average; they do not add up."
)

_PATTERNS = {
    "persistent": "all the time",
    "ramp": "increasing",
    "bursts": "at times",
    "rotating": "varies from step to step",
}


def who(one: Straggler) -> str:
    """Name the ranks: ``rank 3``, ``host b (ranks 2 and 3)``; ``any rank`` if it varies."""
    if not one.ranks:
        return "any rank"
    ranks = listed("rank", one.ranks)
    return f"{listed('host', one.hosts)} ({ranks})" if one.hosts else ranks


def pattern(one: Straggler) -> str:
    """Name the pattern; a rank with more samples than its peers has more work, and is not slower."""
    found = _PATTERNS.get(one.pattern, one.pattern)
    if one.work is None:
        return found
    return f"{found}; uneven work: {one.work:.2f} times its peers' samples"


def excess(one: Straggler) -> str:
    """Write the excess: 12.5 ± 0.3 ms."""
    return amount(one.excess_ms.value, "ms", one.excess_ms.ci95)


def cost(one: Straggler) -> str:
    """Write the cost: 10.9 ± 0.1 ms."""
    return amount(one.cost_ms.value, "ms", one.cost_ms.ci95)

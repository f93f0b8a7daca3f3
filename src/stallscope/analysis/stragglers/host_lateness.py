"""Compare hosts: how late their ranks are, and how often the critical rank is one of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stallscope.arrays.stats import Mean, mean_with_interval

from ..ledger.ledger import Ledger


@dataclass(frozen=True)
class HostLateness:
    """One host's ranks over the steady steps."""

    host: str
    ranks: tuple[int, ...]
    #: Delay against the reference rank, ms: the mean of its ranks; negative where they are earlier.
    late_ms: Mean
    #: How often it has the critical rank, of the steps that its ranks measured, and how often it would
    #: by chance.
    critical_share: float
    chance_share: float


def host_lateness(ledger: Ledger, hosts: Sequence[str]) -> tuple[HostLateness, ...]:
    """Summarise every host, in the order of their lowest ranks.

    Args:
        ledger: steady steps.
        hosts: per rank of the ledger, its host.
    """
    reference = ledger.last - ledger.imbalance
    on: dict[str, list[int]] = {}
    for position, host in enumerate(hosts):
        on.setdefault(host, []).append(position)
    return tuple(
        HostLateness(
            host,
            tuple(ledger.ranks[position] for position in positions),
            _late(ledger, positions, reference),
            _critical_share(ledger, positions),
            len(positions) / len(ledger.ranks),
        )
        for host, positions in on.items()
    )


def _critical_share(ledger: Ledger, positions: list[int]) -> float:
    """Return how often one of the host's ranks was last, of the steps that they measured."""
    measured = ledger.measured.T[positions]
    # A rank whose log was cut early must not hide the steps of all others.
    known = measured.all(axis=0) if measured.all(axis=0).any() else measured.any(axis=0)
    return float(np.isin(ledger.critical[known], positions).mean()) if known.any() else 0.0


def _late(ledger: Ledger, positions: list[int], reference: np.ndarray) -> Mean:
    """Average over the steps that any of the host's ranks measured."""
    measured = ledger.measured.T[positions]
    late = np.where(measured, ledger.arrival.T[positions] - reference, 0).sum(axis=0)
    known = measured.sum(axis=0)
    return mean_with_interval(late[known > 0] / known[known > 0]).scaled(1e-6)

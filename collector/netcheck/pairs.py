"""Decide in which order pairs of hosts exchange data."""

from __future__ import annotations

from typing import Dict, List, Optional, Sequence, Tuple

Pair = Tuple[int, int]

# With more hosts, pairs without a common host exchange data at the same time.
_MOST_HOSTS_ALONE = 16


def first_ranks(hosts: Sequence[str]) -> Dict[str, int]:
    """Return the lowest rank of each host, in the order of ranks."""
    lowest: Dict[str, int] = {}
    for rank, host in enumerate(hosts):
        lowest.setdefault(host, rank)
    return lowest


def turns_of(members: Sequence[int]) -> List[List[Pair]]:
    """Return all pairs of the members in turns; the pairs of a turn exchange data at the same time.

    Every member comes early, so that the first turns cover all of them.
    """
    rounds = _round_robin(members)
    if len(members) > _MOST_HOSTS_ALONE:
        return rounds
    return [[pair] for pairs in rounds for pair in pairs]


def _round_robin(members: Sequence[int]) -> List[List[Pair]]:
    """Return rounds in which every member is in one pair; all rounds together have every pair once."""
    circle: List[Optional[int]] = list(members)
    if len(circle) % 2:
        circle.append(None)
    rounds = []
    for _ in range(len(circle) - 1):
        half = len(circle) // 2
        opposite = zip(circle[:half], reversed(circle[half:]))
        rounds.append(
            [(min(a, b), max(a, b)) for a, b in opposite if a is not None and b is not None]
        )
        # The first one stays, the others move on by one.
        circle[1:] = [circle[-1], *circle[1:-1]]
    return rounds

"""Ranks and numbers as they stand in the evidence of findings."""

from __future__ import annotations

from collections.abc import Sequence

# Longer lists of ranks are cut: what follows is a pattern by then.
_MOST_RANKS = 8
_MOST_CHARACTERS = 60


def ranks_in_words(ranks: Sequence[int]) -> str:
    """rank 3; ranks 0 and 2; ranks 0–7; ranks 1, 4, 6, …"""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    if len(ranks) == 2:
        return f"ranks {ranks[0]} and {ranks[1]}"
    if ranks[-1] - ranks[0] == len(ranks) - 1:
        return f"ranks {ranks[0]}–{ranks[-1]}"
    numbers = [str(rank) for rank in ranks[:_MOST_RANKS]]
    return f"ranks {', '.join(numbers + ['…'] * (len(ranks) > _MOST_RANKS))}"


def counted(count: int, thing: str) -> str:
    """1 checkpoint; 12 checkpoints."""
    return f"{count:,} {thing}{'' if count == 1 else 's'}"


def clipped(text: str) -> str:
    """A value from a log, no longer than it helps."""
    return text if len(text) <= _MOST_CHARACTERS else text[:_MOST_CHARACTERS] + "…"

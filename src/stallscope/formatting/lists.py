"""Write ranks, counts, lists of names and facts in sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

# Longer lists are cut: the pattern is clear by then.
_MOST_RANKS = 8
_MOST_NAMED = 4
_MOST_CHARACTERS = 60


def ranks_in_words(ranks: Sequence[int]) -> str:
    """Write sorted ranks for evidence: rank 3; ranks 0 and 2; ranks 0–7; ranks 1, 4, 6–9 and 12 more."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    if len(ranks) == 2:
        return f"ranks {ranks[0]} and {ranks[1]}"
    parts = _parts(ranks)
    shown = ", ".join(parts[:_MOST_RANKS])
    if len(parts) <= _MOST_RANKS:
        return f"ranks {shown}"
    last = int(parts[_MOST_RANKS - 1].rpartition("–")[2])
    return f"ranks {shown} and {sum(rank > last for rank in ranks):,} more"


def counted(count: int, thing: str, things: str = "") -> str:
    """Write a number with its noun: 1 checkpoint; 1,000 checkpoints; 2 batches."""
    return f"{count:,} {thing if count == 1 else things or thing + 's'}"


def clipped(text: str) -> str:
    """Shorten a value from a log."""
    return text if len(text) <= _MOST_CHARACTERS else text[:_MOST_CHARACTERS] + "…"


def listed(noun: str, names: Sequence[object]) -> str:
    """Write a noun with names: ``rank 3``, ``ranks 3 and 5``, ``ranks 3, 5, 7, 9 and 12 more``.

    Many consecutive numbers are a range, ``ranks 24–31``; names that begin with the noun do without it.
    """
    numbers = [name for name in names if isinstance(name, int)]
    if len(numbers) == len(names) > _MOST_NAMED and len(parts := _parts(numbers)) <= _MOST_NAMED:
        return f"{noun}s {joined(parts)}"
    words = joined([str(name) for name in names])
    if all(str(name).lower().startswith(noun) for name in names):
        return words
    return f"{noun if len(names) == 1 else noun + 's'} {words}"


def _parts(numbers: Sequence[int]) -> list[str]:
    """Write sorted numbers, three or more consecutive ones as a range."""
    parts: list[str] = []
    for part in ranges(numbers).split(", "):
        first, _, last = part.partition("–")
        pair = last and int(last) == int(first) + 1
        parts += [first, last] if pair else [part]
    return parts


def joined(words: Sequence[str]) -> str:
    """Join words: ``a``, ``a and b``, ``a, b, c, d and 12 more``."""
    if len(words) > _MOST_NAMED:
        words = [*words[:_MOST_NAMED], f"{len(words) - _MOST_NAMED} more"]
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


def capitalised(text: str) -> str:
    """Return a sentence with a capital first letter; the rest stays as it is."""
    return text[:1].upper() + text[1:]


def ranges(numbers: Sequence[int]) -> str:
    """Format sorted numbers as ranges: ``0–3, 8``."""
    if not numbers:
        return ""
    parts, first = [], numbers[0]
    for number, after in [*pairwise(numbers), (numbers[-1], None)]:
        if after != number + 1:
            parts.append(f"{first}" if first == number else f"{first}–{number}")
            first = after if after is not None else number
    return ", ".join(parts)


def as_text(value: object) -> str:
    """Write a fact's value; empty if it was not recorded."""
    if value is None:
        return ""
    if isinstance(value, Mapping):
        return ", ".join(
            f"{name} {as_text(item)}" for name, item in value.items() if item is not None
        )
    if isinstance(value, list):
        return ", ".join(as_text(item) for item in value)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return f"{value:,}" if isinstance(value, int) else f"{value:.6g}"
    return str(value)

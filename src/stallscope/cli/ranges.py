"""Format numbers as ranges."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise


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

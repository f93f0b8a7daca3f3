"""Select the steps and ranks to export."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stallscope.arrays.types import Bools, Ints
from stallscope.errors import UsageError
from stallscope.formatting.lists import listed

# Real selections are smaller, and a typo must not fill the memory.
_MOST = 1_000_000


@dataclass(frozen=True)
class Selection:
    """Steps from ``first`` to ``last``, inclusive, and ranks; None selects all."""

    first: int | None = None
    last: int | None = None
    ranks: frozenset[int] | None = None

    def steps(self, numbers: Ints) -> Bools:
        """Mark the selected step numbers."""
        chosen = np.ones(len(numbers), bool)
        if self.first is not None:
            chosen &= numbers >= self.first
        if self.last is not None:
            chosen &= numbers <= self.last
        return chosen

    def of(self, ranks: Sequence[int]) -> Ints:
        """Return the positions of the selected ranks."""
        meant = [at for at, rank in enumerate(ranks) if self.ranks is None or rank in self.ranks]
        return np.array(meant, np.int64)

    def check(self, steps: Ints, ranks: Sequence[int]) -> None:
        """Check the selection against the steps and ranks of a run.

        Args:
            steps: the numbers of all steps, at least one.
            ranks: all ranks that recorded steps.

        Raises:
            UsageError: if it selects nothing, or a rank without steps.
        """
        if not self.steps(steps).any():
            words = [
                *([] if self.first is None else [f"from {self.first}"]),
                *([] if self.last is None else [f"to {self.last}"]),
            ]
            raise UsageError(
                f"no step {' '.join(words)}: the run has steps {steps.min()} to {steps.max()}"
            )
        unknown = sorted((self.ranks or frozenset()) - set(ranks))
        if unknown:
            recorded = listed("rank", sorted(ranks))
            raise UsageError(f"no steps of {listed('rank', unknown)}: the run has {recorded}")


def parse_ranks(text: str) -> frozenset[int]:
    """Parse a list of ranks such as ``0,3,8-15``.

    Raises:
        UsageError: if it is not such a list.
    """
    ranks: set[int] = set()
    for word in text.split(","):
        first, dash, last = word.strip().partition("-")
        if not _is_number(first) or (dash and not _is_number(last)):
            raise UsageError(f"--ranks {text}: give ranks and ranges, for example 0,3,8-15")
        low, high = int(first), int(last if dash else first)
        if not low <= high < low + _MOST:
            raise UsageError(f"--ranks {text}: {word.strip()} is no range of ranks")
        ranks.update(range(low, high + 1))
    return frozenset(ranks)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 10

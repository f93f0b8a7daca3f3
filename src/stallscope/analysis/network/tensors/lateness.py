"""Find the ranks that were last in negotiations with ticks."""

from __future__ import annotations

import numpy as np

from stallscope.arrays.blocks import LATEST
from stallscope.arrays.types import Ints
from stallscope.parsers.formats.horovod_timeline import Activities

from .figures import Cycles, Lateness, LateRank
from .segment import ActivitySegment, within

# Horovod's default cycle time, used if cycles were not marked.
_CYCLE_US = 1000.0


class LatenessTally:
    """Collects rounds of negotiation; overlapping negotiations, as of fused tensors, are one round."""

    def __init__(self) -> None:
        self.negotiations = 0
        #: Negotiations with ticks of more than one rank.
        self.ticked = 0
        self._ranks: set[int] = set()
        # Per round with ticks: how many ranks were ticked, the last one, and its delay after the first.
        self._arrived: list[Ints] = []
        self._last: list[Ints] = []
        self._delay: list[Ints] = []

    def add(self, segment: ActivitySegment) -> None:
        negotiated, ticks = segment.negotiated, segment.ticks
        self.negotiations += len(negotiated)
        if not len(ticks) or not len(negotiated):
            return
        self.ticked += _ticked(segment)
        first, until = _merged(negotiated)
        at = np.searchsorted(first, ticks.at, "right") - 1
        inside = (at >= 0) & (ticks.at <= until[at])
        if not inside.any():
            return
        rounds, at = np.unique(at[inside], return_inverse=True)
        ranks, rank = np.unique(ticks.rank[inside], return_inverse=True)
        arrived = np.full((len(rounds), len(ranks)), -1)
        np.maximum.at(arrived, (at, rank), ticks.at[inside])
        self._ranks |= set(ranks.tolist())
        self._arrived.append((arrived >= 0).sum(axis=1))
        self._last.append(ranks[arrived.argmax(axis=1)])
        self._delay.append(arrived.max(axis=1) - np.where(arrived < 0, LATEST, arrived).min(axis=1))

    def lateness(self, cycles: Cycles | None) -> Lateness | None:
        """Summarise the rounds in which all ranks were ticked; None without any."""
        if len(self._ranks) < 2:
            return None
        complete = np.concatenate(self._arrived) == len(self._ranks)
        last, delay = np.concatenate(self._last)[complete], np.concatenate(self._delay)[complete]
        if not len(last):
            return None
        cycle_us = _CYCLE_US if cycles is None else 1e3 * cycles.median_ms
        delayed = delay > cycle_us
        late = [
            LateRank(
                rank, int(rounds.sum()), float(delay[rounds].mean()) / 1e3 if rounds.any() else None
            )
            for rank in sorted(self._ranks)
            for rounds in (delayed & (last == rank),)
        ]
        late.sort(key=lambda late_rank: (-late_rank.last, late_rank.rank))
        return Lateness(len(last), int((~delayed).sum()), cycle_us / 1e3, tuple(late))


def _ticked(segment: ActivitySegment) -> int:
    """Count the negotiations during which more than one rank was ticked."""
    ticks = segment.ticks
    negotiation = within(segment.negotiated, ticks.tensor, ticks.at, ticks.at)
    pairs = np.unique(np.stack([negotiation, ticks.rank])[:, negotiation >= 0], axis=1)
    return int(np.count_nonzero(np.bincount(pairs[0], minlength=1) > 1))


def _merged(rows: Activities) -> tuple[Ints, Ints]:
    """Merge overlapping activities; return the starts and ends of the merged intervals, in order."""
    reached = np.maximum.accumulate(rows.end)
    starts = np.append(True, rows.begin[1:] > reached[:-1])
    return rows.begin[starts], reached[np.append(starts[1:], True)]

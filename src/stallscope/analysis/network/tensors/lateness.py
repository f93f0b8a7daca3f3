"""Who came last in negotiations, as far as ranks were ticked."""

from __future__ import annotations

import numpy as np

from stallscope.arrays.types import Ints
from stallscope.parsers.horovod_timeline import Activities

from .figures import Cycles, Lateness, LateRank
from .piece import Piece, within

_NEVER = np.iinfo(np.int64).max
# Horovod's own cycle time, where cycles were not marked.
_CYCLE_US = 1000.0


class LatenessTally:
    """Rounds of negotiation: those that overlap are one, as fused tensors would count many times."""

    def __init__(self) -> None:
        self.negotiations = 0
        #: Those with a tick of more than one rank.
        self.ticked = 0
        self._ranks: set[int] = set()
        # Per round with ticks: how many ranks came, which one last, and how far behind the first.
        self._came: list[Ints] = []
        self._last: list[Ints] = []
        self._behind: list[Ints] = []

    def add(self, piece: Piece) -> None:
        negotiated, ticks = piece.negotiated, piece.ticks
        self.negotiations += len(negotiated)
        if not len(ticks) or not len(negotiated):
            return
        self.ticked += _ticked(piece)
        first, until = _stretches(negotiated)
        at = np.searchsorted(first, ticks.at, "right") - 1
        inside = (at >= 0) & (ticks.at <= until[at])
        if not inside.any():
            return
        rounds, at = np.unique(at[inside], return_inverse=True)
        ranks, rank = np.unique(ticks.rank[inside], return_inverse=True)
        came = np.full((len(rounds), len(ranks)), -1)
        np.maximum.at(came, (at, rank), ticks.at[inside])
        self._ranks |= set(ranks.tolist())
        self._came.append((came >= 0).sum(axis=1))
        self._last.append(ranks[came.argmax(axis=1)])
        self._behind.append(came.max(axis=1) - np.where(came < 0, _NEVER, came).min(axis=1))

    def found(self, cycles: Cycles | None) -> Lateness | None:
        """Rounds in which all ranks were ticked; None without any."""
        if len(self._ranks) < 2:
            return None
        whole = np.concatenate(self._came) == len(self._ranks)
        last, behind = np.concatenate(self._last)[whole], np.concatenate(self._behind)[whole]
        if not len(last):
            return None
        cycle_us = _CYCLE_US if cycles is None else 1e3 * cycles.median_ms
        apart = behind > cycle_us
        late = [
            LateRank(
                rank, int(mine.sum()), float(behind[mine].mean()) / 1e3 if mine.any() else None
            )
            for rank in sorted(self._ranks)
            for mine in (apart & (last == rank),)
        ]
        late.sort(key=lambda one: (-one.last, one.rank))
        return Lateness(len(last), int((~apart).sum()), cycle_us / 1e3, tuple(late))


def _ticked(piece: Piece) -> int:
    """Negotiations during which more than one rank was ticked."""
    ticks = piece.ticks
    mine = within(piece.negotiated, ticks.tensor, ticks.at, ticks.at)
    pairs = np.unique(np.stack([mine, ticks.rank])[:, mine >= 0], axis=1)
    return int(np.count_nonzero(np.bincount(pairs[0], minlength=1) > 1))


def _stretches(rows: Activities) -> tuple[Ints, Ints]:
    """The stretches of time that activities cover together, in order."""
    reached = np.maximum.accumulate(rows.end)
    fresh = np.append(True, rows.begin[1:] > reached[:-1])
    return rows.begin[fresh], reached[np.append(fresh[1:], True)]

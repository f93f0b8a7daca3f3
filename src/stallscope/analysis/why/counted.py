"""What machines counted during the steady steps, per rank and piece of time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from stallscope.arrays.types import Floats
from stallscope.run import Log, Run, Series

from ..ledger.ledger import Ledger
from ..steps.alignment import AlignedSteps

# Pieces are as long as the time between two values, and not more than this many.
_MOST_PIECES = 600
_SECOND = 1_000_000_000


@dataclass(frozen=True)
class Counted:
    """Means over equal pieces of the steady steps."""

    ranks: tuple[int, ...]
    #: Of each rank.
    hosts: tuple[str, ...]
    #: By name of the quantity: R × P, NaN where nothing was counted. What a host counted stands for all
    #: of its ranks.
    of: Mapping[str, Floats]
    #: The mean step, seconds.
    step_s: float

    def rows(self, name: str, ranks: Sequence[int]) -> Floats | None:
        """Return a quantity of some ranks, or None if it was not counted on any of them."""
        values = self.of.get(name)
        if values is None:
            return None
        own = values[[self.ranks.index(rank) for rank in ranks]]
        return None if np.isnan(own).all() else own

    def on(self, host: str) -> list[int]:
        """Return the ranks on a host."""
        return [rank for rank, own in zip(self.ranks, self.hosts, strict=True) if own == host]


def count(run: Run, world: AlignedSteps, steady: Ledger) -> Counted | None:
    """Place what the recorders read from the kernel on the time of the steady steps.

    Returns:
        None if nothing was counted, or there are no steady steps.
    """
    logs = {log.path: log for log in run.logs if log.generation == world.generation}
    own = [one for one in run.series if one.where in logs]
    if not own or not len(steady):
        return None
    begin, end = int(steady.reduced[0] - steady.total[0]), int(steady.reduced[-1])
    usual = max(_SECOND, int(np.median([_interval(one) for one in own])))
    pieces = int(np.clip((end - begin) // usual, 1, _MOST_PIECES))
    found: dict[str, _Sums] = {}
    offsets = dict(zip(world.ranks, world.clocks.mean_offset.astype(np.int64), strict=True))
    of_host: dict[str, list[int]] = {}
    for at, host in enumerate(world.hosts):
        of_host.setdefault(host, []).append(at)
    for series in own:
        log = logs[series.where]
        if log.rank not in offsets:
            continue
        rows = [world.ranks.index(log.rank)] if series.rank is not None else of_host[log.host]
        sums = found.setdefault(series.name, _Sums(len(world.ranks), pieces))
        sums.add(rows, _middles(series, log, int(offsets[log.rank])), series.value, begin, end)
    means = {name: sums.means() for name, sums in found.items()}
    return Counted(world.ranks, world.hosts, means, float(steady.total.mean()) / _SECOND)


class _Sums:
    """Sums and numbers of values per rank and piece."""

    def __init__(self, ranks: int, pieces: int) -> None:
        self._total = np.zeros((ranks, pieces))
        self._values = np.zeros((ranks, pieces))

    def add(self, rows: Sequence[int], at: Floats, value: Floats, begin: int, end: int) -> None:
        pieces = self._total.shape[1]
        piece = ((at - begin) / max(end - begin, 1) * pieces).astype(np.int64)
        inside = (at >= begin) & (at < end)
        piece, value = piece[inside], value[inside]
        total = np.bincount(piece, value, pieces)
        values = np.bincount(piece, minlength=pieces)
        for row in rows:
            self._total[row] += total
            self._values[row] += values

    def means(self) -> Floats:
        means = np.full(self._total.shape, np.nan)
        np.divide(self._total, self._values, out=means, where=self._values > 0)
        return means


def _interval(series: Series) -> float:
    return float(np.median(np.diff(series.wall_ns))) if len(series.wall_ns) > 1 else 0.0


def _middles(series: Series, log: Log, offset: int) -> Floats:
    """Return the middle of each value's time, on the clock of the reference rank."""
    at = series.wall_ns - log.wall_minus_monotonic - offset
    before = np.diff(at, prepend=at[:1] - int(_interval(series)))
    return np.asarray(at - before / 2)

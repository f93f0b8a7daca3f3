"""Ranks that share gradients cannot be far apart, and ranks that are do not share them.

What a rank contributes to step i + 1 comes after it has got step i reduced, and no rank gets step
i + 1 reduced before everybody has contributed. So on one clock no rank has reduced step i + 1
before the last one has reduced step i, however slow a rank is and however uneven the work.

Hosts with clocks of their own show it, too: how far apart they complete the same step is the
difference of their clocks, and stays what it is but for drift. Where it grows by seconds, the hosts
have moved apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stallscope.arrays.blocks import LATEST, NULL, Block
from stallscope.arrays.lazy_scipy import ndimage
from stallscope.arrays.pivot import by_parts
from stallscope.arrays.types import Ints
from stallscope.formatting.lists import ranks_in_words

from .finding import Finding
from .records import Records, Reductions

# One step would do if no timestamp were ever wrong.
_SEVERAL_STEPS = 3
_FEWEST_APART = 0.01
# Without timestamps, ends of steps are what a host saw: it hands work to its device so far ahead.
_STEPS_AHEAD_OF_DEVICE = 50

# Between hosts so many steps stand for all of them.
_SAMPLED_STEPS = 1000
_SMOOTHED_STEPS = 5
_FORGIVEN_JUMPS = 3
_TOLERANCE_SECONDS = 2.0
# Twice the rate at which a clock is slewed at most.
_DRIFT = 1e-3


class _Apart(NamedTuple):
    """Two ranks of one clock at one moment, when one had done more steps than it can have."""

    steps: int
    #: Rank and step of either.
    behind: tuple[int, int]
    ahead: tuple[int, int]
    #: All ranks of the clock, and the share of their steps that lie too far apart.
    ranks: tuple[int, ...]
    share: float


def ranks_apart(records: Records) -> Iterator[Finding]:
    reductions = records.reductions
    if len(reductions.ranks) < 2 or not len(reductions.steps):
        return
    moments = _Moments.of(reductions)
    found = [_on_one_clock(records, moments, clock) for clock in range(len(moments.names))]
    most = max(filter(None, found), default=None)
    evidence = _in_words(records, most) if most else _between_hosts(reductions, moments)
    if evidence:
        yield Finding(
            "ranks_apart",
            "error",
            "Ranks train independently of each other",
            evidence,
            "See that every rank wraps its optimizer or tape (hvd.DistributedOptimizer, "
            "hvd.DistributedGradientTape, DistributedDataParallel), and that all of them were "
            "started as one job.",
        )


@dataclass(frozen=True)
class _Moments:
    """Clocks × steps: when a clock's first and last rank had reduced it; LATEST and NULL if none had."""

    names: list[str]
    #: Per clock, the positions of its ranks.
    ranks: list[Ints]
    earliest: Ints
    latest: Ints

    @classmethod
    def of(cls, reductions: Reductions) -> _Moments:
        clocks = np.array(reductions.clocks)
        names = sorted(set(reductions.clocks))
        ranks = [np.flatnonzero(clocks == name) for name in names]
        return cls(
            names, ranks, *reductions.cells.gathered(_first_and_last, reductions.stamp, ranks)
        )


def _first_and_last(block: Block, stamp: str, ranks: list[Ints]) -> tuple[Ints, Ints]:
    """Clocks × steps, both of them."""
    at = block.of(stamp, np.concatenate(ranks)).T
    begins = np.cumsum([0, *map(len, ranks[:-1])])
    first, last = (join.reduceat(at, begins, axis=0) for join in (np.minimum, np.maximum))
    if (first == NULL).any():
        first = np.minimum.reduceat(_or_never(at), begins, axis=0)
    return first, last


def _on_one_clock(records: Records, moments: _Moments, clock: int) -> _Apart | None:
    """The moment at which a clock's ranks were furthest apart; None if they never were."""
    own = moments.ranks[clock]
    if len(own) < 2:
        return None
    reductions = records.reductions
    columns = np.flatnonzero(moments.latest[clock] != NULL)
    latest = moments.latest[clock, columns]
    # From here on: when the first rank had reduced this step or a later one.
    earliest = np.minimum.accumulate(moments.earliest[clock, columns][::-1])[::-1]
    several = _several(records)
    apart = np.count_nonzero(latest[:-several] > earliest[several:])
    if apart < max(1, _FEWEST_APART * len(columns)):
        return None
    ahead = np.searchsorted(earliest, latest) - 1
    last = int(np.argmax(ahead - np.arange(len(columns))))
    first = int(ahead[last])
    front, behind = (_at(reductions, columns[at])[own] for at in (first, last))
    steps = reductions.steps[columns]
    return _Apart(
        int(steps[first] - steps[last]),
        (reductions.ranks[own[behind.argmax()]], int(steps[last])),
        (reductions.ranks[own[_or_never(front).argmin()]], int(steps[first])),
        tuple(reductions.ranks[index] for index in own),
        apart / len(columns),
    )


def _in_words(records: Records, apart: _Apart) -> str:
    done = "had reduced" if records.reductions.stamped else "was done with"
    (behind, step), (ahead, further) = apart.behind, apart.ahead
    epochs = (_epoch_of(records, ahead, further) or 0) - (_epoch_of(records, behind, step) or 0)
    also = f" and {epochs:,} epochs" if epochs > 1 else ""
    return (
        f"When rank {behind} {done} step {step:,}, rank {ahead} {done} step {further:,} already: "
        f"they are {apart.steps:,} steps{also} apart. Ranks that reduce their gradients together are "
        f"never more than one; {ranks_in_words(apart.ranks)} are at least {_several(records)} apart in "
        f"{apart.share:.0%} of steps."
    )


def _several(records: Records) -> int:
    """From how many steps on ranks are apart."""
    if records.reductions.stamped:
        return _SEVERAL_STEPS
    # At the end of an epoch a host waits for its device to read the metrics.
    longest = int(records.epochs.steps.max(initial=0)) or _STEPS_AHEAD_OF_DEVICE
    return max(_SEVERAL_STEPS, min(_STEPS_AHEAD_OF_DEVICE, longest + 1))


def _between_hosts(reductions: Reductions, moments: _Moments) -> str | None:
    """The sentence about two hosts that moved apart; None where none did."""
    there = (moments.earliest != LATEST).any(axis=1)
    names = [name for name, known in zip(moments.names, there, strict=True) if known]
    at, clocks = moments.earliest[there], reductions.clocks
    common = np.flatnonzero((at != LATEST).all(axis=0))
    if len(names) < 2 or len(common) <= _SMOOTHED_STEPS:
        return None
    sampled = common[np.linspace(0, len(common) - 1, min(len(common), _SAMPLED_STEPS)).astype(int)]
    at = at[:, sampled] - at[:, sampled[:1]]
    apart = ndimage.median_filter(at - at[0], size=(1, _SMOOTHED_STEPS), mode="nearest")
    change = np.diff(apart, axis=1)
    # A machine that is paused, or whose clock is set, jumps; hosts that train apart move all the time.
    jumps = np.argpartition(np.abs(change), -_FORGIVEN_JUMPS, axis=1)[:, -_FORGIVEN_JUMPS:]
    np.put_along_axis(change, jumps, 0, axis=1)
    moved = np.cumsum(change, axis=1)
    beyond = np.abs(moved) / 1e9 - _TOLERANCE_SECONDS - _DRIFT * at[0, 1:] / 1e9
    host, place = np.unravel_index(beyond.argmax(), beyond.shape)
    steps = reductions.steps[sampled]
    step_ns = max(1.0, float(at[0, -1]) / max(1, int(steps[-1] - steps[0])))
    lag = abs(int(moved[host, place]))
    if beyond[host, place] <= 0 or lag < _SEVERAL_STEPS * step_ns:
        return None
    pair = [names[host], names[0]] if moved[host, place] > 0 else [names[0], names[host]]
    slow, fast = (
        ranks_in_words(
            [rank for rank, clock in zip(reductions.ranks, clocks, strict=True) if clock == name]
        )
        for name in pair
    )
    return (
        f"By step {steps[place + 1]:,}, {slow} had fallen {lag / 1e9:.1f} s behind "
        f"{fast} on another host, about {lag / step_ns:,.0f} steps. Ranks that reduce their gradients "
        "together are never more than one apart, and no clocks drift like that."
    )


def _or_never(at: Ints) -> Ints:
    return np.where(at == NULL, LATEST, at)


def _epoch_of(records: Records, rank: int, step: int) -> int | None:
    epochs = list(chain.from_iterable(by_parts(records.run.steps, _epochs_of, rank, step)))
    return epochs[-1] if epochs else None


def _epochs_of(part: pa.Table, rank: int, step: int) -> list[int | None]:
    rows = part.filter(pc.equal(part["step"], step))
    found: list[int | None] = rows.filter(pc.equal(rows["rank"], rank))["epoch"].to_pylist()
    return found


def _at(reductions: Reductions, step: int) -> Ints:
    """Per rank, when it had reduced the step at this position."""
    return np.asarray(reductions.cells.rows(reductions.stamp, np.array([step]))[0])

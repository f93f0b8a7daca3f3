"""Ranks that share gradients cannot be far apart, and ranks that are do not share them.

What a rank contributes to step i + 1 comes after it has got step i reduced, and nobody gets step
i + 1 reduced before everybody has contributed. So on one clock no rank has reduced step i + 1
before the last one has reduced step i, however slow a rank is and however uneven the work.

Hosts with clocks of their own show it, too: how far apart they complete the same step is the
difference of their clocks, and stays what it is but for drift. Where it grows by seconds, the hosts
have moved apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc
from scipy.ndimage import median_filter

from ..result import Finding
from .records import NULL, Ints, Records, Reductions
from .words import ranks_in_words

_NEVER = np.iinfo(np.int64).max

# One step would do if no stamp were ever wrong.
_SEVERAL_STEPS = 3
_FEWEST_APART = 0.01
# Without stamps, ends of steps are what a host saw: it hands work to its device so far ahead.
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
    clocks = np.array(reductions.clocks)
    names = sorted(set(reductions.clocks))
    found = [_on_one_clock(records, np.flatnonzero(clocks == name)) for name in names]
    most = max(filter(None, found), default=None)
    evidence = _in_words(records, most) if most else _between_hosts(reductions, clocks, names)
    if evidence:
        yield Finding(
            "ranks_apart",
            "error",
            "Ranks train apart from each other",
            evidence,
            "See that every rank wraps its optimizer or tape (hvd.DistributedOptimizer, "
            "hvd.DistributedGradientTape, DistributedDataParallel), and that all of them were "
            "started as one job.",
        )


def _on_one_clock(records: Records, own: Ints) -> _Apart | None:
    """The moment at which these ranks were furthest apart; None if they never were."""
    if len(own) < 2:
        return None
    reductions = records.reductions
    at = reductions.at if len(own) == len(reductions.at) else reductions.at[own]
    columns = np.flatnonzero(at.max(axis=0) != NULL)
    latest = at.max(axis=0)[columns]
    # From here on: when the first rank had reduced this step or a later one.
    earliest = np.minimum.accumulate(_earliest(at)[columns][::-1])[::-1]
    several = _several(records)
    apart = np.count_nonzero(latest[:-several] > earliest[several:])
    if apart < max(1, _FEWEST_APART * len(columns)):
        return None
    ahead = np.searchsorted(earliest, latest) - 1
    last = int(np.argmax(ahead - np.arange(len(columns))))
    first = int(ahead[last])
    behind = own[at[:, columns[last]].argmax()]
    front = own[_or_never(at[:, columns[first]]).argmin()]
    steps = reductions.steps[columns]
    return _Apart(
        int(steps[first] - steps[last]),
        (reductions.ranks[behind], int(steps[last])),
        (reductions.ranks[front], int(steps[first])),
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


def _between_hosts(
    reductions: Reductions, clocks: npt.NDArray[np.str_], names: list[str]
) -> str | None:
    """The sentence about two hosts that moved apart; None where none did."""
    each = {name: _earliest(reductions.at[clocks == name]) for name in names}
    names = [name for name in names if each[name].min() != _NEVER]
    at = np.stack([each[name] for name in names or each])
    common = np.flatnonzero((at != _NEVER).all(axis=0))
    if len(names) < 2 or len(common) <= _SMOOTHED_STEPS:
        return None
    sampled = common[np.linspace(0, len(common) - 1, min(len(common), _SAMPLED_STEPS)).astype(int)]
    at = at[:, sampled] - at[:, sampled[:1]]
    apart = median_filter(at - at[0], size=(1, _SMOOTHED_STEPS), mode="nearest")
    change = np.diff(apart, axis=1)
    # A machine that is paused, or whose clock is set, jumps; hosts that train apart move all the time.
    jumps = np.argpartition(np.abs(change), -_FORGIVEN_JUMPS, axis=1)[:, -_FORGIVEN_JUMPS:]
    np.put_along_axis(change, jumps, 0, axis=1)
    moved = np.cumsum(change, axis=1)
    beyond = np.abs(moved) / 1e9 - _TOLERANCE_SECONDS - _DRIFT * at[0, 1:] / 1e9
    host, place = np.unravel_index(beyond.argmax(), beyond.shape)
    step_ns = max(1.0, float(at[0, -1]) / max(1, int(sampled[-1] - sampled[0])))
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
        f"By step {reductions.steps[sampled[place + 1]]:,}, {slow} had fallen {lag / 1e9:.1f} s behind "
        f"{fast} on another host, about {lag / step_ns:,.0f} steps. Ranks that reduce their gradients "
        "together are never more than one apart, and no clocks drift like that."
    )


def _earliest(at: Ints) -> Ints:
    """Per step the earliest moment of any rank; _NEVER where no rank has it."""
    return np.asarray(_or_never(at).min(axis=0))


def _or_never(at: Ints) -> Ints:
    return np.where(at == NULL, _NEVER, at)


def _epoch_of(records: Records, rank: int, step: int) -> int | None:
    rows = records.run.steps.filter(pc.equal(records.run.steps["step"], step))
    rows = rows.filter(pc.equal(rows["rank"], rank))
    epochs = rows["epoch"].to_pylist()
    return epochs[-1] if epochs else None

"""Find ranks that train independently: ranks that reduce gradients together stay within one step.

A rank contributes to step i + 1 only after it has received the result of step i, and no rank receives
the result of step i + 1 before all ranks have contributed. So on one clock, no rank completes step i + 1
before the last rank completes step i, however slow a rank is and however uneven the work.

Hosts with different clocks show it, too. The times at which two hosts complete the same step differ by
their clocks' offset, which is constant except for drift. If the difference grows by seconds, the hosts
train independently.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from stallscope.arrays import arrow
from stallscope.arrays.blocks import LATEST, NULL, Block
from stallscope.arrays.groups import of_each
from stallscope.arrays.lazy_scipy import ndimage
from stallscope.arrays.pivot import by_parts
from stallscope.arrays.stats import evenly
from stallscope.arrays.types import Ints
from stallscope.formatting.lists import ranks_in_words

from .finding import Finding
from .records import Records, ReductionTimes

# One step would suffice if all timestamps were exact.
_SEVERAL_STEPS = 3
_FEWEST_APART = 0.01
# Without timestamps only the host's ends of steps are known; a host queues this many steps ahead.
_STEPS_AHEAD_OF_DEVICE = 50

# Hosts are compared on this many sampled steps.
_SAMPLED_STEPS = 1000
_SMOOTHED_STEPS = 5
_FORGIVEN_JUMPS = 3
_TOLERANCE_SECONDS = 2.0
# Twice the largest rate at which a clock is slewed.
_DRIFT = 1e-3


class _Divergence(NamedTuple):
    """Two ranks of one clock at one moment, more steps apart than is possible in a joint training."""

    steps: int
    #: Rank and step of both.
    behind: tuple[int, int]
    ahead: tuple[int, int]
    #: All ranks of the clock, and the share of their steps that are too far apart.
    ranks: tuple[int, ...]
    share: float


def ranks_apart(records: Records) -> Iterator[Finding]:
    """Find ranks that train independently of each other."""
    reductions = records.reductions
    if len(reductions.ranks) < 2 or not len(reductions.steps):
        return
    completions = _Completions.of(reductions)
    divergences = [
        _on_one_clock(records, completions, clock) for clock in range(len(completions.ranks))
    ]
    most = max(filter(None, divergences), default=None)
    evidence = _in_words(records, most) if most else _between_hosts(reductions, completions)
    if evidence:
        yield Finding(
            "ranks_apart",
            "error",
            "Ranks train independently of each other",
            evidence,
            "Make sure that every rank wraps its optimizer or tape (hvd.DistributedOptimizer, "
            "hvd.DistributedGradientTape, DistributedDataParallel), and that all ranks were started "
            "as one job.",
        )


@dataclass(frozen=True)
class _Completions:
    """When the first and the last rank of each clock had reduced each step; LATEST and NULL if none had.

    Matrices are clocks × steps.
    """

    #: The positions of each clock's ranks.
    ranks: list[Ints]
    earliest: Ints
    latest: Ints

    @classmethod
    def of(cls, reductions: ReductionTimes) -> _Completions:
        clocks = np.array(reductions.clocks)
        # In the order of ranks, so that blocks need not be copied.
        names = dict.fromkeys(reductions.clocks)
        ranks = [np.flatnonzero(clocks == name) for name in names]
        return cls(ranks, *reductions.cells.gathered(_first_and_last, reductions.column, ranks))


def _first_and_last(block: Block, column: str, ranks: list[Ints]) -> tuple[Ints, Ints]:
    """Kernel: return the first and the last time of each clock, clocks × steps."""
    at = block.of(column, np.concatenate(ranks)).T
    starts = np.cumsum([0, *map(len, ranks[:-1])], dtype=np.int64)
    first, last = (of_each(join, at, starts) for join in (np.minimum, np.maximum))
    if (first == NULL).any():
        first = of_each(np.minimum, _null_as_latest(at), starts)
    return first, last


def _on_one_clock(records: Records, completions: _Completions, clock: int) -> _Divergence | None:
    """Find the moment at which a clock's ranks were furthest apart; None if they never were."""
    ranks = completions.ranks[clock]
    if len(ranks) < 2:
        return None
    reductions = records.reductions
    columns = np.flatnonzero(completions.latest[clock] != NULL)
    latest = _never_set_back(completions.latest[clock, columns])
    earliest = _never_set_back(completions.earliest[clock, columns])
    # When the first rank had reduced this step or a later one.
    earliest = np.minimum.accumulate(earliest[::-1])[::-1]
    several = _several(records)
    apart = np.count_nonzero(latest[:-several] > earliest[several:])
    if apart < max(1, _FEWEST_APART * len(columns)):
        return None
    ahead = np.searchsorted(earliest, latest) - 1
    last = int(np.argmax(ahead - np.arange(len(columns))))
    first = int(ahead[last])
    behind, leading = reductions.cells.rows(reductions.column, columns[[last, first]])[:, ranks]
    steps = reductions.steps[columns]
    return _Divergence(
        int(steps[first] - steps[last]),
        (reductions.ranks[ranks[behind.argmax()]], int(steps[last])),
        (reductions.ranks[ranks[_null_as_latest(leading).argmin()]], int(steps[first])),
        tuple(reductions.ranks[index] for index in ranks),
        apart / len(columns),
    )


def _never_set_back(at: Ints) -> Ints:
    """Return ascending times without the jumps of a clock that was set back.

    However far ranks are apart, no rank reduces a step before the step before it.
    """
    steps = np.diff(at)
    back = steps < 0
    if not back.any():
        return at
    usual = int(np.median(steps[~back])) if not back.all() else 0
    return np.asarray(at + np.append(0, np.cumsum(np.where(back, usual - steps, 0))))


def _in_words(records: Records, divergence: _Divergence) -> str:
    done = "reduced" if records.reductions.measured else "completed"
    (behind, step), (ahead, later_step) = divergence.behind, divergence.ahead
    epochs = (_epoch_of(records, ahead, later_step) or 0) - (_epoch_of(records, behind, step) or 0)
    also = f" and {epochs:,} epochs" if epochs > 1 else ""
    return (
        f"When rank {behind} {done} step {step:,}, rank {ahead} had already {done} step "
        f"{later_step:,}: they are {divergence.steps:,} steps{also} apart. Ranks that reduce their "
        f"gradients together are never more than one step apart; {ranks_in_words(divergence.ranks)} "
        f"are at least {_several(records)} apart in {divergence.share:.0%} of steps."
    )


def _several(records: Records) -> int:
    """Return the number of steps from which ranks count as apart."""
    if records.reductions.measured:
        return _SEVERAL_STEPS
    # At the end of an epoch a host waits for its device to read the metrics.
    longest = int(records.epochs.steps.max(initial=0)) or _STEPS_AHEAD_OF_DEVICE
    return max(_SEVERAL_STEPS, min(_STEPS_AHEAD_OF_DEVICE, longest + 1))


def _between_hosts(reductions: ReductionTimes, completions: _Completions) -> str | None:
    """Describe two hosts that drifted apart by several steps; None if no two did."""
    clocks = np.flatnonzero((completions.earliest != LATEST).any(axis=1))
    at = completions.earliest[clocks]
    common = np.flatnonzero((at != LATEST).all(axis=0))
    if len(clocks) < 2 or len(common) <= _SMOOTHED_STEPS:
        return None
    sampled = common[evenly(len(common), _SAMPLED_STEPS)]
    at = np.array([_never_set_back(times) for times in at[:, sampled]])
    at -= at[:, :1]
    apart = ndimage.median_filter(at - at[0], size=(1, _SMOOTHED_STEPS), mode="nearest")
    change = np.diff(apart, axis=1)
    # A paused machine, or one with a clock that is set, jumps; independent hosts drift all the time.
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
    pair = clocks[[host, 0] if moved[host, place] > 0 else [0, host]]
    slow, fast = (
        ranks_in_words([reductions.ranks[index] for index in completions.ranks[clock]])
        for clock in pair
    )
    return (
        f"By step {steps[place + 1]:,}, {slow} had fallen {lag / 1e9:.1f} s behind "
        f"{fast} on another host, about {lag / step_ns:,.0f} steps. Ranks that reduce their gradients "
        "together are never more than one step apart, and no clocks drift by that much."
    )


def _null_as_latest(at: Ints) -> Ints:
    return np.where(at == NULL, LATEST, at)


def _epoch_of(records: Records, rank: int, step: int) -> int | None:
    columns = ("rank", "step", "epoch")
    parts = by_parts(records.run.steps, columns, _epochs_of, rank, step)
    epochs = list(chain.from_iterable(parts))
    return epochs[-1] if epochs else None


def _epochs_of(part: pa.Table, rank: int, step: int) -> list[int | None]:
    rows = part.filter(arrow.equal(part["step"], step))
    epochs: list[int | None] = rows.filter(arrow.equal(rows["rank"], rank))["epoch"].to_pylist()
    return epochs

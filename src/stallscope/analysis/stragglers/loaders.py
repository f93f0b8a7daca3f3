"""Loaders that run ahead: a rank that waits for another one's batch may have a loader as slow.

A loader with a queue makes the next batch while its rank computes and waits. Where the loaders of
several ranks are too slow, their batches come at one pace, and whose come first in each step is chance,
or a difference of one percent: the slightly faster loader gets ahead, until its rank never asks in
vain. All waiting then seems to be the slowest one's doing, by far more than the percent it is slower.
Were its loader as fast as can be, the others would wait for their own instead.

So where loaders run ahead, a rank that has starved is held to its own loader's pace, as far as it
was not the last to be ready. Whether loaders run ahead, the steps tell: a batch that is made ahead comes
when it comes, so every millisecond that the rank spends elsewhere shortens the input that follows
by one. A loader that makes its batch when asked to takes what it takes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from stallscope.arrays.blocks import Array, Block
from stallscope.arrays.types import Bools, Floats, Ints

from ..ledger.ledger import Ledger, in_order
from .replay import ASSUMED_MS, some_of

# A rank starves in a step whose input is so much of a step, and more than a dispatch needs.
_STARVING = 0.05
# A rank that starves in fewer steps, or fewer pairs of them, shows no pace of its loader.
_FEWEST_SHARE = 0.02
_FEWEST_PAIRS = 8
# How much of a millisecond elsewhere shortens the input: between not at all (0) and all of it (1).
_RUNS_AHEAD = 0.5
_STANDARD_ERRORS = 2.0
# A single rank shows fewer pairs, and its errors are less certain.
_SURE_STANDARD_ERRORS = 4.0
# A loader cannot be slower than the steps for long: such a pace was a stall's.
_AT_MOST_OF_A_STEP = 1.02


def with_loaders_at_work(ledger: Ledger) -> Ledger:
    """The ledger with ranks that starve held to their loaders' pace: what they waited for others, as
    input.

    Step times and the last ranks' arrivals stay what they are. It is the same ledger where fewer
    than two ranks starve, and where the steps show that batches are made when asked for.

    Args:
        ledger: steady steps.
    """
    starving, ahead = _loaders_too_slow(ledger)
    if len(starving) < 2 or ahead is False:
        return ledger
    # Full queues make the first steps of an epoch short: those are no pace of a loader.
    step = float(max(ledger.total.mean(), np.median(ledger.total)))
    made = ledger.cells.made_by_ranks(_held_to_pace, _Steps.of(ledger), starving, ledger.last, step)
    cells = ledger.cells.merged_with(made)
    reference, second, last = cells.gathered(_order)
    # Who was last stays the last, although others may now be as late.
    second = np.where(second == ledger.critical, last, second)
    return replace(ledger, cells=cells, reference=reference, second=second)


def pace_unseen(ledger: Ledger, slow: Sequence[int]) -> bool:
    """Whether these ranks' loaders run ahead and the others' are never waited for.

    How much faster than the slow ones the others' loaders are does not show then: their queues are full.

    Args:
        ledger: steady steps.
        slow: positions of the ranks whose input makes the others wait.
    """
    if not slow:
        return False
    starving, ahead = _loaders_too_slow(ledger)
    return len(starving) > 0 and set(starving) <= set(slow) and ahead is not False


def late_batches(ledger: Ledger) -> Bools:
    """Return in which steps the critical rank waits for its batch: its loader works all the time."""
    return np.asarray(ledger.by_cause("input") > _Steps.of(ledger).least)


@dataclass(frozen=True)
class _Steps:
    """What kernels have to know of the steps."""

    #: What a rank's input has to exceed for it to starve.
    least: float
    follows: Bools
    total: Ints

    @classmethod
    def of(cls, ledger: Ledger) -> _Steps:
        step = float(ledger.total.mean()) if len(ledger) else 0.0
        return cls(max(ASSUMED_MS * 1e6, _STARVING * step), _follows(ledger), ledger.total)

    def starves(self, fetch: Ints) -> tuple[Bools, Bools]:
        """Whether ranks wait for their batches: in each step, and in it and in the one before it."""
        starves = fetch > self.least
        pairs = np.zeros_like(starves)
        pairs[1:] = starves[1:] & starves[:-1] & self.follows[1:, None]
        return starves, pairs

    def elsewhere(self, arrival: Ints, fetch: Ints, compute: Ints) -> Ints:
        """For all steps but the first: from getting the batch before to asking for this one."""
        rest = self.total[:, None] - (arrival - compute)
        return np.asarray(rest[:-1] + (arrival - fetch - compute)[1:])


def _some_starve(ledger: Ledger) -> Ints:
    """Positions of the ranks that starve often enough to show their loaders' pace."""
    if not len(ledger):
        return np.zeros(0, np.int64)
    found = ledger.cells.by_ranks(_count_starving, _Steps.of(ledger))
    starves, pairs = (np.concatenate(counts) for counts in zip(*found, strict=True))
    often = starves / len(ledger) >= _FEWEST_SHARE
    return np.flatnonzero(often & (pairs >= _FEWEST_PAIRS))


def _count_starving(block: Block, steps: _Steps) -> tuple[Ints, Ints]:
    """Per rank, how often it starves, and how often twice in a row."""
    starves, pairs = steps.starves(block["input"])
    return starves.sum(axis=0), pairs.sum(axis=0)


def _order(block: Block) -> tuple[Ints, Ints, Ints]:
    return in_order(block["arrival"], block["measured"])


def _follows(ledger: Ledger) -> Bools:
    """Per step whether the step before it is there, and nothing lies between the two."""
    follows = np.zeros(len(ledger), bool)
    follows[1:] = np.diff(ledger.steps) == 1
    follows[1:] &= np.diff(ledger.epochs) == 0
    return follows & ~ledger.session_start & ~ledger.gaps.any(axis=1)


def _held_to_pace(
    block: Block, steps: _Steps, starving: Ints, last: Ints, step: float
) -> dict[str, Array]:
    """Arrivals and inputs of ranks, of which those that starve are held to their loaders' pace."""
    arrival, fetch, compute = (block[name] for name in ("arrival", "input", "compute"))
    arrival, fetch = arrival.copy(order="K"), fetch.copy(order="K")
    starves, pairs = steps.starves(fetch)
    elsewhere = steps.elsewhere(arrival, fetch, compute)
    wait = last[:, None] - arrival
    for at in np.flatnonzero(np.isin(block.ranks, starving)).tolist():
        spent, own, waited = (array[:, at] for array in (elsewhere, fetch, wait))
        at_work = _at_work(spent, own, starves[:, at], pairs[:, at], waited, step)
        longer = np.where(steps.follows[1:], at_work, 0)
        arrival[1:, at] += longer
        fetch[1:, at] += longer
    return {"arrival": arrival, "input": fetch}


def _at_work(
    elsewhere: Ints, fetch: Ints, starves: Bools, pairs: Bools, wait: Ints, step: float
) -> Ints:
    """For all steps but the first: how much longer the rank's own loader would have kept it."""
    # While it starves its loader is at work all the time, that of waiting for others included.
    longer = np.where(starves[1:], wait[:-1], 0)
    pace = float(np.median((elsewhere + fetch[1:])[pairs[1:]]))
    if pace <= _AT_MOST_OF_A_STEP * step:
        # In a step that is not kept up by others, elsewhere is compute, allreduce and other.
        ahead = int(pace) - (elsewhere - wait[:-1]) - fetch[1:]
        longer = np.where(starves[1:], longer, np.maximum(ahead, 0))
    return np.asarray(np.minimum(longer, wait[1:]))


def _loaders_too_slow(ledger: Ledger) -> tuple[Ints, bool | None]:
    """Return the positions of the ranks that starve, and whether their loaders run ahead.

    Ranks that only wait for a batch to be handed over are left out. On busy cores a worker process
    takes milliseconds to hand over a batch that it has made long before. That takes what it takes,
    while the other ranks' input shrinks by what was spent elsewhere.
    """
    starving = _some_starve(ledger)
    if len(starving) > 1:
        slope, error = _slopes(ledger, starving)
        too_slow = starving[~(slope - _SURE_STANDARD_ERRORS * error > -_RUNS_AHEAD)]
        # Where no loader runs ahead, all ranks wait for batches that are made when asked for.
        if 0 < len(too_slow) < len(starving) and _run_ahead(ledger, too_slow):
            return too_slow, True
    return starving, _run_ahead(ledger, starving) if len(starving) else None


def _run_ahead(ledger: Ledger, starving: Ints) -> bool | None:
    """Whether input shrinks by what was spent elsewhere before it; None if that is unknown."""
    (slope,), (error,) = _slopes(ledger, np.array(some_of(starving.tolist())), pooled=True)
    if slope - _STANDARD_ERRORS * error > -_RUNS_AHEAD:
        return False
    return True if slope + _STANDARD_ERRORS * error < -_RUNS_AHEAD else None


def _slopes(ledger: Ledger, starving: Ints, pooled: bool = False) -> tuple[Floats, Floats]:
    """Return how much longer input is per nanosecond that was spent elsewhere before it.

    Args:
        ledger: steady steps.
        starving: positions of the ranks to look at.
        pooled: whether to look at all of them as one.

    Returns:
        A slope per rank, or a single one, and their standard errors; NaN where there are too few steps.
    """
    ranks, steps = starving.tolist(), _Steps.of(ledger)
    products = np.concatenate(ledger.cells.by_ranks(_products, steps, ranks=ranks))
    if pooled:
        products = products.sum(axis=0, keepdims=True)
    gram = products[:, :2, :2]
    known = np.linalg.matrix_rank(gram) == 2
    inverse = np.full_like(gram, np.nan)
    inverse[known] = np.linalg.inv(gram[known])
    slopes = np.einsum("rij,rj->ri", inverse, products[:, :2, 2])
    of_position = np.full((len(ledger.ranks), 2), np.nan)
    of_position[starving] = slopes
    # Each pair with its own scatter (White 1980): stalls are rare and long.
    meat = np.concatenate(ledger.cells.by_ranks(_scatter, steps, of_position, ranks=ranks))
    if pooled:
        meat = meat.sum(axis=0, keepdims=True)
    variance = (inverse @ meat @ inverse)[:, 0, 0]
    # Where rounding leaves a variance below nothing, the slope's error is unknown.
    return slopes[:, 0], np.sqrt(np.where(variance >= 0, variance, np.nan))


def _pairs(block: Block, steps: _Steps) -> Iterator[Floats]:
    """Of each rank its pairs of steps in which it starves × (elsewhere between them, the input before,
    the input that follows), each around its mean.
    """
    fetch = block["input"]
    _, pairs = steps.starves(fetch)
    elsewhere = steps.elsewhere(block["arrival"], fetch, block["compute"])
    for own, spent, starved in zip(fetch.T, elsewhere.T, pairs.T, strict=True):
        at = np.flatnonzero(starved)
        # What the input before took is held fixed: a slow loader shortens its rank's waiting, too.
        yield np.stack(
            [_centred(values) for values in (spent[at - 1], own[at - 1], own[at])], axis=1
        )


def _products(block: Block, steps: _Steps) -> Floats:
    """Ranks × 3 × 3: sums over pairs of the products of what ``_pairs`` gives."""
    return np.array([own.T @ own for own in _pairs(block, steps)])


def _scatter(block: Block, steps: _Steps, slopes: Floats) -> Floats:
    """Ranks × 2 × 2: the same of the first two, weighted by the squares of what the slopes leave.

    Args:
        block: some ranks.
        steps: what is known of the steps.
        slopes: of all ranks, by position.
    """
    result = []
    for own, slope in zip(_pairs(block, steps), slopes[list(block.ranks)], strict=True):
        design, left = own[:, :2], own[:, 2] - own[:, :2] @ slope
        result.append((design * (left**2)[:, None]).T @ design)
    return np.array(result)


def _centred(values: Ints) -> Floats:
    return np.asarray(values - values.mean())

"""Correct for prefetching loaders: a rank that waits for another rank's batch may have a loader as slow.

A prefetching loader makes the next batch while its rank computes and waits. If the loaders of several
ranks are too slow, their batches come at one pace, and which rank's batch arrives first is random. If
one loader is one percent faster, it gets ahead until its rank never waits for a batch. All waiting then
seems to be caused by the slowest loader. But if that one were fixed, the other ranks would wait for
their own loaders.

So where loaders prefetch, a rank that has starved is assumed to go at its own loader's pace in steps in
which it was not the last to be ready. The steps show whether loaders prefetch: every millisecond that a
rank spends elsewhere shortens the following input by one. A loader that makes its batch on demand takes
the same time in any case.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from stallscope.arrays.blocks import Array, Block
from stallscope.arrays.types import Bools, Floats, Ints

from ..ledger.build import ranks_by_arrival
from ..ledger.ledger import Ledger
from .replay import ASSUMED_MS, some_of

# A rank starves in a step if its input is this share of a step, and longer than a dispatch.
_STARVING = 0.05
# With fewer such steps, or fewer pairs of them, the loader's pace is unknown.
_FEWEST_SHARE = 0.02
_FEWEST_PAIRS = 8
# A loader prefetches if a millisecond elsewhere shortens the input by more than this; 0 is on demand.
_RUNS_AHEAD = 0.5
_STANDARD_ERRORS = 2.0
# A single rank has fewer pairs, so its errors are less certain.
_SURE_STANDARD_ERRORS = 4.0
# A loader cannot be slower than the steps for long: a slower pace comes from a stall.
_AT_MOST_OF_A_STEP = 1.02


def with_loaders_at_work(ledger: Ledger) -> Ledger:
    """Return a ledger in which starving ranks go at their loaders' pace: their waiting counts as input.

    Step times and the last ranks' arrivals stay the same. The ledger is returned unchanged if fewer than
    two ranks starve, or if batches are made on demand.

    Args:
        ledger: steady steps.
    """
    starving, ahead = _loaders_too_slow(ledger)
    if len(starving) < 2 or ahead is False:
        return ledger
    # Full queues make the first steps of an epoch short, so they do not show the loader's pace.
    step = float(max(ledger.total.mean(), np.median(ledger.total)))
    paced = ledger.cells.compute_by_ranks(
        _held_to_pace, _Steps.of(ledger), starving, ledger.last, step
    )
    cells = ledger.cells.merged_with(paced)
    reference, second, last = cells.gathered(_order)
    # The last rank stays the last, although others may now be as late.
    second = np.where(second == ledger.critical, last, second)
    return replace(ledger, cells=cells, reference=reference, second=second)


def peer_limit_unknown(ledger: Ledger, slow: Sequence[int]) -> bool:
    """Whether these ranks' loaders prefetch and no other rank ever waits for its loader.

    Then the other loaders' limit is unknown, because their queues are always full.

    Args:
        ledger: steady steps.
        slow: positions of the ranks that make the others wait by their input.
    """
    if not slow:
        return False
    starving, ahead = _loaders_too_slow(ledger)
    return len(starving) > 0 and set(starving) <= set(slow) and ahead is not False


def late_batches(ledger: Ledger) -> Bools:
    """Mark the steps in which the critical rank waits for its batch: its loader is always busy then."""
    return np.asarray(ledger.by_cause("input") > _Steps.of(ledger).least)


@dataclass(frozen=True)
class _Steps:
    """Facts about the steps that kernels need."""

    #: A rank starves if its input is longer than this.
    least: float
    follows: Bools
    total: Ints

    @classmethod
    def of(cls, ledger: Ledger) -> _Steps:
        step = float(ledger.total.mean()) if len(ledger) else 0.0
        return cls(max(ASSUMED_MS * 1e6, _STARVING * step), _follows(ledger), ledger.total)

    def starves(self, fetch: Ints) -> tuple[Bools, Bools]:
        """Mark where ranks wait for their batches: in each step, and in it and the one before."""
        starves = fetch > self.least
        pairs = np.zeros_like(starves)
        pairs[1:] = starves[1:] & starves[:-1] & self.follows[1:, None]
        return starves, pairs

    def elsewhere(self, arrival: Ints, fetch: Ints, compute: Ints) -> Ints:
        """Return the time from getting a batch to asking for the next, for all steps but the first."""
        rest = self.total[:, None] - (arrival - compute)
        return np.asarray(rest[:-1] + (arrival - fetch - compute)[1:])


def _some_starve(ledger: Ledger) -> Ints:
    """Find the ranks (positions) that starve often enough to show their loaders' pace."""
    if not len(ledger):
        return np.zeros(0, np.int64)
    blocks = ledger.cells.by_ranks(_count_starving, _Steps.of(ledger))
    starves, pairs = (np.concatenate(counts) for counts in zip(*blocks, strict=True))
    often = starves / len(ledger) >= _FEWEST_SHARE
    return np.flatnonzero(often & (pairs >= _FEWEST_PAIRS))


def _count_starving(block: Block, steps: _Steps) -> tuple[Ints, Ints]:
    """Kernel: count per rank how often it starves, and how often twice in a row."""
    starves, pairs = steps.starves(block["input"])
    return starves.sum(axis=0), pairs.sum(axis=0)


def _order(block: Block) -> tuple[Ints, Ints, Ints]:
    return ranks_by_arrival(block["arrival"], block["measured"], block.steps.start)


def _follows(ledger: Ledger) -> Bools:
    """Mark the steps that directly follow another one."""
    follows = np.zeros(len(ledger), bool)
    follows[1:] = np.diff(ledger.steps) == 1
    follows[1:] &= np.diff(ledger.epochs) == 0
    return follows & ~ledger.session_start & ~ledger.gaps.any(axis=1)


def _held_to_pace(
    block: Block, steps: _Steps, starving: Ints, last: Ints, step: float
) -> dict[str, Array]:
    """Kernel: correct arrivals and inputs of ranks that starve to their loaders' pace."""
    arrival, fetch, compute = (block[name] for name in ("arrival", "input", "compute"))
    arrival, fetch = arrival.copy(order="K"), fetch.copy(order="K")
    starves, pairs = steps.starves(fetch)
    elsewhere = steps.elsewhere(arrival, fetch, compute)
    wait = last[:, None] - arrival
    for at in np.flatnonzero(np.isin(block.ranks, starving)).tolist():
        spent, fetched, waited = (array[:, at] for array in (elsewhere, fetch, wait))
        at_work = _at_work(spent, fetched, starves[:, at], pairs[:, at], waited, step)
        longer = np.where(steps.follows[1:], at_work, 0)
        arrival[1:, at] += longer
        fetch[1:, at] += longer
    return {"arrival": arrival, "input": fetch}


def _at_work(
    elsewhere: Ints, fetch: Ints, starves: Bools, pairs: Bools, wait: Ints, step: float
) -> Ints:
    """Return, for all steps but the first, how much longer the rank's own loader would have taken."""
    # While a rank starves, its loader works all the time, also while the rank waits for others.
    longer = np.where(starves[1:], wait[:-1], 0)
    pace = float(np.median((elsewhere + fetch[1:])[pairs[1:]]))
    if pace <= _AT_MOST_OF_A_STEP * step:
        # Without waiting for others, time elsewhere is compute, allreduce and other.
        ahead = int(pace) - (elsewhere - wait[:-1]) - fetch[1:]
        longer = np.where(starves[1:], longer, np.maximum(ahead, 0))
    return np.asarray(np.minimum(longer, wait[1:]))


def _loaders_too_slow(ledger: Ledger) -> tuple[Ints, bool | None]:
    """Return the positions of the ranks that starve, and whether their loaders prefetch.

    Ranks that only wait for a batch to be handed over are left out. On busy cores a worker process takes
    milliseconds to hand over a finished batch. That time is constant, while the input of ranks that
    starve shrinks by the time spent elsewhere.
    """
    starving = _some_starve(ledger)
    if len(starving) > 1:
        slope, error = _slopes(ledger, starving)
        too_slow = starving[~(slope - _SURE_STANDARD_ERRORS * error > -_RUNS_AHEAD)]
        if 0 < len(too_slow) < len(starving):
            ahead = _run_ahead(ledger, too_slow)
            # If no loader prefetches, all ranks wait for batches made on demand. If that is unknown,
            # ranks are not held to a pace that is surely not theirs.
            if ahead or (ahead is None and _run_ahead(ledger, starving) is None):
                return too_slow, ahead
    return starving, _run_ahead(ledger, starving) if len(starving) else None


def _run_ahead(ledger: Ledger, starving: Ints) -> bool | None:
    """Whether input shrinks by the time spent elsewhere before it; None if that is unknown."""
    (slope,), (error,) = _slopes(ledger, np.array(some_of(starving.tolist())), pooled=True)
    if slope - _STANDARD_ERRORS * error > -_RUNS_AHEAD:
        return False
    return True if slope + _STANDARD_ERRORS * error < -_RUNS_AHEAD else None


def _slopes(ledger: Ledger, starving: Ints, pooled: bool = False) -> tuple[Floats, Floats]:
    """Return how much longer input is per nanosecond spent elsewhere before it.

    Args:
        ledger: steady steps.
        starving: positions of the ranks to look at.
        pooled: whether to pool them.

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
    # Errors that allow for unequal variances (White 1980): stalls are rare and long.
    meat = np.concatenate(ledger.cells.by_ranks(_scatter, steps, of_position, ranks=ranks))
    if pooled:
        meat = meat.sum(axis=0, keepdims=True)
    variance = (inverse @ meat @ inverse)[:, 0, 0]
    # If rounding makes a variance negative, the slope's error is unknown.
    return slopes[:, 0], np.sqrt(np.where(variance >= 0, variance, np.nan))


def _pairs(block: Block, steps: _Steps) -> Iterator[Floats]:
    """Yield each rank's pairs of steps in which it starves.

    Pairs × (time elsewhere between them, the input before, the input after), each minus its mean.
    """
    fetch = block["input"]
    _, pairs = steps.starves(fetch)
    elsewhere = steps.elsewhere(block["arrival"], fetch, block["compute"])
    for fetched, spent, starved in zip(fetch.T, elsewhere.T, pairs.T, strict=True):
        at = np.flatnonzero(starved)
        # Control for the input before: a slow loader also shortens its rank's waiting.
        yield np.stack(
            [_centred(values) for values in (spent[at - 1], fetched[at - 1], fetched[at])], axis=1
        )


def _products(block: Block, steps: _Steps) -> Floats:
    """Kernel: sums over pairs of the products of the columns of ``_pairs``: ranks × 3 × 3."""
    return np.array([pairs.T @ pairs for pairs in _pairs(block, steps)])


def _scatter(block: Block, steps: _Steps, slopes: Floats) -> Floats:
    """Kernel: products of the first two columns, weighted by squared residuals: ranks × 2 × 2.

    Args:
        block: some ranks.
        steps: facts about the steps.
        slopes: of all ranks, by position.
    """
    result = []
    for pairs, slope in zip(_pairs(block, steps), slopes[list(block.ranks)], strict=True):
        design, left = pairs[:, :2], pairs[:, 2] - pairs[:, :2] @ slope
        result.append((design * (left**2)[:, None]).T @ design)
    return np.array(result)


def _centred(values: Ints) -> Floats:
    return np.asarray(values - values.mean())

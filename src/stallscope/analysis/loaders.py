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

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from .blocks import HeldCells
from .ledger import Ledger, in_order
from .what_if import ASSUMED_MS, some_of

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]

# A rank starves in a step whose input is so much of a step, and more than a dispatch needs.
_STARVING = 0.05
# A rank that starves in fewer steps, or fewer pairs of them, shows no pace of its loader.
_FEWEST_SHARE = 0.02
_FEWEST_PAIRS = 8
# How much of a millisecond elsewhere shortens the input: between not at all (0) and all of it (1).
_RUNS_AHEAD = 0.5
_STANDARD_ERRORS = 2.0
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
    starves, follows = _starves(ledger), _follows(ledger)
    pairs = _pairs(starves, follows)
    starving = _some_starve(starves, pairs)
    if len(starving) < 2 or _run_ahead(ledger, starving, pairs) is False:
        return ledger
    arrival, fetch = ledger.arrival.copy(order="K"), ledger.input.copy(order="K")
    wait, step = ledger.wait, float(ledger.total.mean())
    for rank in starving.tolist():
        at_work = _at_work(ledger, rank, starves[:, rank], pairs[:, rank], wait[:, rank], step)
        longer = np.where(follows[1:], at_work, 0)
        arrival[1:, rank] += longer
        fetch[1:, rank] += longer
    reference, second, last = in_order(arrival, ledger.measured)
    # Who was last stays the last, although others may now be as late.
    second = np.where(second == ledger.critical, last, second)
    cells = ledger.cells.beside(HeldCells.of({"arrival": arrival, "input": fetch}))
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
    starves = _starves(ledger)
    pairs = _pairs(starves, _follows(ledger))
    starving = _some_starve(starves, pairs)
    own = np.intersect1d(starving, slow)
    return len(own) == len(starving) > 0 and _run_ahead(ledger, own, pairs) is not False


def _starves(ledger: Ledger) -> Bools:
    """n × R: whether the rank waits for its batch."""
    step = float(ledger.total.mean()) if len(ledger) else 0.0
    return np.asarray(ledger.input > max(ASSUMED_MS * 1e6, _STARVING * step))


def _pairs(starves: Bools, follows: Bools) -> Bools:
    """n × R: whether the rank starves in this step and in the one before it."""
    pairs = np.zeros_like(starves)
    pairs[1:] = starves[1:] & starves[:-1] & follows[1:, None]
    return pairs


def _some_starve(starves: Bools, pairs: Bools) -> Ints:
    """Positions of the ranks that starve often enough to show their loaders' pace."""
    if not len(starves):
        return np.zeros(0, np.int64)
    often = starves.mean(axis=0) >= _FEWEST_SHARE
    return np.flatnonzero(often & (pairs.sum(axis=0) >= _FEWEST_PAIRS))


def _follows(ledger: Ledger) -> Bools:
    """Per step whether the step before it is there, and nothing lies between the two."""
    follows = np.zeros(len(ledger), bool)
    follows[1:] = np.diff(ledger.steps) == 1
    follows[1:] &= np.diff(ledger.epochs) == 0
    return follows & ~ledger.session_start & ~ledger.gaps.any(axis=1)


def _at_work(
    ledger: Ledger, rank: int, starves: Bools, pairs: Bools, wait: Ints, step: float
) -> Ints:
    """For all steps but the first: how much longer the rank's own loader would have kept it."""
    elsewhere = _elsewhere(ledger, rank)
    # While it starves its loader is at work all the time, that of waiting for others included.
    longer = np.where(starves[1:], wait[:-1], 0)
    pace = float(np.median((elsewhere + ledger.input[1:, rank])[pairs[1:]]))
    if pace <= _AT_MOST_OF_A_STEP * step:
        # In a step that is not kept up by others, elsewhere is compute, allreduce and other.
        ahead = int(pace) - (elsewhere - wait[:-1]) - ledger.input[1:, rank]
        longer = np.where(starves[1:], longer, np.maximum(ahead, 0))
    return np.asarray(np.minimum(longer, wait[1:]))


def _elsewhere(ledger: Ledger, rank: int) -> Ints:
    """For all steps but the first: from getting the batch before to asking for this one."""
    arrival, fetch, compute = (
        array[:, rank] for array in (ledger.arrival, ledger.input, ledger.compute)
    )
    rest = ledger.total - (arrival - compute)
    return np.asarray(rest[:-1] + (arrival - fetch - compute)[1:])


def _run_ahead(ledger: Ledger, starving: Ints, pairs: Bools) -> bool | None:
    """Whether input shrinks by what was spent elsewhere before it; None where that cannot be told."""
    elsewhere, before, now = [], [], []
    for rank in some_of(starving.tolist()):
        at = np.flatnonzero(pairs[:, rank])
        elsewhere.append(_centred(_elsewhere(ledger, rank)[at - 1]))
        # What the input before took is held fixed: a slow loader shortens its rank's waiting, too.
        before.append(_centred(ledger.input[at - 1, rank]))
        now.append(_centred(ledger.input[at, rank]))
    slope, error = _slope(*(np.concatenate(parts) for parts in (elsewhere, before, now)))
    if slope - _STANDARD_ERRORS * error > -_RUNS_AHEAD:
        return False
    return True if slope + _STANDARD_ERRORS * error < -_RUNS_AHEAD else None


def _centred(values: Ints) -> Floats:
    return np.asarray(values - values.mean())


def _slope(x: Floats, beside: Floats, y: Floats) -> tuple[float, float]:
    """The slope of y over x with ``beside`` held fixed, and its standard error; (0, ∞) without any."""
    design = np.stack([x, beside], axis=1)
    gram = design.T @ design
    if np.linalg.matrix_rank(gram) < 2:
        return 0.0, float("inf")
    inverse = np.linalg.inv(gram)
    slopes = inverse @ (design.T @ y)
    residuals = y - design @ slopes
    # Each pair with its own scatter (White 1980): stalls are rare and long.
    meat = (design * (residuals**2)[:, None]).T @ design
    return float(slopes[0]), float(np.sqrt((inverse @ meat @ inverse)[0, 0]))

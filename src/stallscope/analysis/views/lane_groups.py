"""Choose which ranks share a lane, and how late a cell must be to stand out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from stallscope.arrays.stats import evenly, robust_sd
from stallscope.arrays.types import Ints

from ..generation_summary import GenerationLedger
from ..ledger.ledger import Ledger

_MS = 1e-6
# Chance makes a rank late by more than this in less than one of a million cells.
_LATE_SDS = 6.0
_SMALLEST_SHARE = 0.05
# The usual lateness is taken over at most this many ranks and steps: more do not change it.
_RANKS_FOR_USUAL = 64
_STEPS_FOR_USUAL = 2000


@dataclass(frozen=True)
class UsuallyLate:
    """Shares of the steps that are not unusual, although a rank is marked as late in them."""

    #: Per rank, the steps in which it is marked.
    by_rank: Mapping[int, float]
    #: The steps in which any rank is marked.
    any_rank: float


def groupings(hosts: Sequence[str]) -> list[Ints]:
    """Return where lanes start: each has 1, 2, 4, … neighbours on a host, then 1, 2, 4, … hosts."""
    count = len(hosts)
    host_starts = np.array([row for row in range(count) if not row or hosts[row] != hosts[row - 1]])
    sizes = np.diff(host_starts, append=count)
    starts, size = [], 1
    while size < sizes.max():
        parts = zip(host_starts, sizes, strict=True)
        starts.append(
            np.concatenate([start + np.arange(0, length, size) for start, length in parts])
        )
        size *= 2
    size = 1
    while not starts or len(starts[-1]) > 1:
        starts.append(host_starts[::size])
        size *= 2
    return starts


def late_from(generations: Sequence[GenerationLedger]) -> float:
    """Return the lateness above which a cell is unusual, ms."""
    # Without warm-up: ranks trace and connect at different times, which would hide later lateness.
    ledgers = [
        generation.ledger if generation.steady is None else generation.steady
        for generation in generations
    ]
    others = np.concatenate([_lateness(ledger) for ledger in ledgers])
    scatter = robust_sd(np.concatenate([others, -others]))
    total = np.concatenate([ledger.total for ledger in ledgers])
    return max(_LATE_SDS * scatter, _SMALLEST_SHARE * float(np.median(total))) * _MS


def usually_late(generations: Sequence[GenerationLedger], limit: float) -> UsuallyLate:
    """Return how often ranks are later than ``limit`` (ms) in steady steps that are not unusual."""
    steps, with_late = 0, 0
    by_rank: dict[int, list[int]] = {}
    for generation in generations:
        steady = np.setdiff1d(np.flatnonzero(~generation.warm_up), generation.late_steps)
        sample = steady[evenly(len(steady), _STEPS_FOR_USUAL)]
        ledger = generation.ledger
        reference = ledger.arrival[sample, ledger.reference[sample]]
        arrival = ledger.arrival[np.ix_(sample, np.arange(len(ledger.ranks)))]
        late = arrival - reference[:, None] >= limit / _MS
        steps, with_late = steps + len(sample), with_late + int(late.any(axis=1).sum())
        for rank, count in zip(ledger.ranks, late.sum(axis=0).tolist(), strict=True):
            counts = by_rank.setdefault(int(rank), [0, 0])
            counts[0] += count
            counts[1] += len(sample)
    shares = {rank: late / max(of, 1) for rank, (late, of) in by_rank.items()}
    return UsuallyLate(shares, with_late / max(steps, 1))


def _lateness(ledger: Ledger) -> Ints:
    """Return how much later than usual some ranks are in some steps."""
    steps = evenly(len(ledger), _STEPS_FOR_USUAL)
    ranks = evenly(len(ledger.ranks), _RANKS_FOR_USUAL)
    reference = ledger.arrival[steps, ledger.reference[steps]]
    late = ledger.arrival[np.ix_(steps, ranks)] - reference[:, None]
    # With two ranks, the slow one would be half of all values.
    unusual = late - np.median(late, axis=0)
    # Leave out the reference rank: its lateness is 0.
    return np.asarray(unusual[ranks != ledger.reference[steps][:, None]])

"""Compute goodput: the share of ranks × wall time that went into steps that count, and the losses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from stallscope.run import Run

from .generations import Generations
from .job_time import PARTS, JobTime, stood_still
from .ledger import ENTRIES

# Entries of the ledger that are lost; the rest of a step is compute.
_LOST_IN_STEPS = tuple(name for name in ENTRIES if name != "compute")
# What happened in time that no log recorded is unknown: it is neither lost nor used well.
_LOST_OUTSIDE = tuple(name for name in PARTS if name not in ("steps", "unrecorded"))
#: Losses by name: outside of steps that count, and within them.
LOST = (*_LOST_OUTSIDE, *_LOST_IN_STEPS)


@dataclass(frozen=True)
class Goodput:
    """Seconds of wall clock, means over the ranks: ``compute_s`` and ``lost_s`` add up to ``total_s``.

    Time that no log recorded is left out.
    Where the number of ranks changed, each generation counts with its own.
    """

    #: The fraction of ranks × wall time that went into steps that count.
    fraction: float
    #: The fraction that went into the compute of these steps.
    compute_fraction: float
    compute_s: float
    #: By the names of LOST.
    lost_s: dict[str, float]
    total_s: float
    #: Ranks × wall time, seconds.
    rank_s: float


def goodput(run: Run, generations: Generations, times: Sequence[JobTime]) -> Goodput | None:
    """Return a run's goodput; None where the stages of its steps were not measured.

    Args:
        run: the run.
        generations: its ledgers.
        times: the time of each generation with a ledger, from ``generation_times``.
    """
    filled = generations.filled
    if not filled:
        return None
    # Rank-seconds by name; ``compute`` among them.
    spent = dict.fromkeys((*LOST, "compute"), 0.0)
    steps = rank_s = 0.0
    for index, time in zip(filled, times, strict=True):
        size = run.size_of(generations.aligned[index].generation)
        in_steps = _in_steps(generations, index)
        rank_s += size * time.recorded
        steps += size * time.steps
        for name in _LOST_OUTSIDE:
            spent[name] += size * getattr(time, name)
        for name, share in in_steps.items():
            spent[name] += size * time.steps * share
    total = sum(time.recorded for time in times)
    mean_ranks = rank_s / total if total else 1.0
    seconds = {name: value / mean_ranks for name, value in spent.items()}
    compute = seconds.pop("compute")
    return Goodput(
        fraction=steps / rank_s if rank_s else 0.0,
        compute_fraction=compute / total if total else 0.0,
        compute_s=compute,
        lost_s=seconds,
        total_s=total,
        rank_s=rank_s,
    )


def _in_steps(generations: Generations, index: int) -> Mapping[str, float]:
    """Return the entries' shares of the steps that count; all compute without such a step."""
    ledger, warm = generations.ledgers[index], generations.warm[index]
    counted = ~warm & ~generations.repeated(index)
    # A step in which the job hung counts with its usual time.
    moving = ledger.total - stood_still(ledger.total, warm)
    weight = (moving / np.maximum(ledger.total, 1))[counted]
    sums = {name: float((ledger.entry(name)[counted] * weight).sum()) for name in ENTRIES}
    whole = sum(sums.values())
    return {name: value / whole for name, value in sums.items()} if whole else {"compute": 1.0}

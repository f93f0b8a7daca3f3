"""Where the whole job's time went: steps, and everything else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from stallscope.arrays.blocks import NULL
from stallscope.arrays.pivot import by_parts
from stallscope.run import Run

from ..steps.alignment import AlignedSteps
from .ledger import GAPS, Ledger
from .sampled import skipped_time


@dataclass(frozen=True)
class JobTime:
    """Seconds of wall clock; they add up to ``total`` exactly."""

    startup: float
    warmup: float
    steps: float
    validation: float
    checkpoint: float
    epoch_gap: float
    total: float


def job_time(
    run: Run,
    worlds: Sequence[AlignedSteps],
    ledgers: Sequence[Ledger],
    warm: Sequence[npt.NDArray[np.bool_]],
) -> JobTime:
    """Split the job's time, from the first process's start to the last end of a log.

    Start-up is the time before the first step and between the sessions of a job (restarts, another
    fit). Time after the last step is the gap after its epoch, unless it was validation or a
    checkpoint.
    """
    ns = {"startup": 0, "warmup": 0, "steps": 0, "validation": 0, "checkpoint": 0, "epoch_gap": 0}
    began, ended = _span(run)
    clock = began
    for world, ledger, warm_up in zip(worlds, ledgers, warm, strict=True):
        if not len(ledger):
            continue
        ns["warmup"] += int(ledger.total[warm_up].sum())
        ns["steps"] += int(ledger.total[~warm_up].sum())
        for index, kind in enumerate(GAPS):
            ns[kind] += int(ledger.gaps[:, index].sum())
        trailing, between = _trailing(world, ledger), skipped_time(run, world)
        ns["steps"] += between[0]
        ns["validation"] += trailing[0] + between[1]
        ns["checkpoint"] += trailing[1] + between[2]
        span = int(ledger.total.sum() + ledger.gaps.sum()) + sum(trailing) + sum(between)
        last = int(ledger.reduced[-1]) + sum(trailing)
        # The rest lies before the first step or between sessions.
        ns["startup"] += max(0, last - clock - span)
        clock = max(clock, last)
    total = max(ended - began, sum(ns.values()))
    ns["epoch_gap"] += total - sum(ns.values())
    return JobTime(**{name: value / 1e9 for name, value in ns.items()}, total=total / 1e9)


def _span(run: Run) -> tuple[int, int]:
    """Return the first start and the last end, on the clock of the aligned steps (lowest rank)."""
    lowest = min(run.logs, key=lambda log: (log.rank, -log.generation, -log.part))
    own = [log.clock_domain == lowest.clock_domain for log in run.logs]
    began = min(log.process_start for log, here in zip(run.logs, own, strict=True) if here)
    ends = [began]
    for table in (run.intervals, run.steps):
        ends += chain.from_iterable(by_parts(table, _last_end, np.array(own)))
    return began, max(ends)


def _last_end(part: pa.Table, logs: npt.NDArray[np.bool_]) -> list[int]:
    """Return when the last row of some logs ended; empty without such logs."""
    here = logs[part["log"].to_numpy()]
    return [int(part["end"].to_numpy()[here].max())] if here.any() else []


def _trailing(world: AlignedSteps, ledger: Ledger) -> tuple[int, int]:
    """Return validation and checkpoints after the last step, of the rank that spent most."""
    intervals = world.intervals
    spent = []
    for kind in GAPS[:2]:
        chosen = (intervals.kind == kind) & (intervals.step > ledger.steps[-1])
        per_rank = np.zeros(len(world.ranks), np.int64)
        low = np.maximum(intervals.begin[chosen], ledger.reduced[-1])
        np.add.at(
            per_rank, intervals.rank_index[chosen], np.maximum(intervals.end[chosen] - low, 0)
        )
        spent.append(int(per_rank.max(initial=0)))
    return spent[0], spent[1]


def host_step_times(aligned: AlignedSteps) -> npt.NDArray[np.int64]:
    """Return step times without stages: from one start to the next on the first rank.

    Nanoseconds; steps that are not consecutive, or start an epoch or a session, are left out.
    """
    begin = aligned.cells.columns("begin", [0])[:, 0]
    usable = (np.diff(aligned.steps) == 1) & ~aligned.session_start[1:]
    usable &= aligned.epochs[1:] == aligned.epochs[:-1]
    usable &= (begin[1:] != NULL) & (begin[:-1] != NULL)
    # The first step of a session traces; without a ledger, warm-up is not known more precisely.
    usable &= ~aligned.session_start[:-1]
    return np.asarray(np.diff(begin)[usable])

"""Split the job's wall time into steps and everything else: its goodput."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import chain

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from stallscope.arrays import arrow
from stallscope.arrays.blocks import NULL
from stallscope.arrays.pivot import by_parts
from stallscope.arrays.types import Bools, Ints
from stallscope.collector.recorder.hangs import overdue_ns
from stallscope.run import Log, Run
from stallscope.words import ENTRIES

from ..steps.alignment import PAUSES, AlignedSteps
from .by_generation import Generations, first_log
from .ledger import GAPS
from .sampled import time_outside


@dataclass(frozen=True)
class JobTime:
    """Seconds of wall clock; they add up to ``total`` exactly."""

    #: Before the first step.
    startup: float
    warmup: float
    #: Steps that count, without warm-up.
    steps: float
    #: Between two generations: from the last progress of one to the first step of the next.
    restart: float
    #: Steps that a later generation trained again.
    repeated: float
    #: Time in which the job hung: in a step that took very long, or that never ended.
    stopped: float
    validation: float
    checkpoint: float
    epoch_gap: float
    #: Between steps whose numbers jump: no log has the steps between them.
    unrecorded: float
    total: float

    @property
    def recorded(self) -> float:
        """Return the time that a log recorded."""
        return self.total - self.unrecorded


#: The parts of a job's time.
PARTS = tuple(field.name for field in fields(JobTime) if field.name != "total")


def sum_of(times: Sequence[JobTime]) -> JobTime:
    """Add up the times of a job's generations."""
    return JobTime(
        **{
            field.name: sum(getattr(time, field.name) for time in times)
            for field in fields(JobTime)
        }
    )


def generation_times(run: Run, generations: Generations, stands_still_s: float) -> list[JobTime]:
    """Split the job's time by generation, from the first process's start to the last end of a log.

    The time before a generation's first step belongs to that generation. The time between two sessions
    of one generation (another fit) counts as start-up. Time after the last step is the gap after its
    epoch, unless it was validation or a checkpoint.

    Args:
        run: the run.
        generations: its ledgers.
        stands_still_s: how long the job has been hanging at the end, seconds.
    """
    began, ended = _span(run, generations)
    filled = generations.filled
    if not filled:
        return [_in_seconds({"epoch_gap": ended - began})]
    clock = began
    times: list[dict[str, int]] = []
    for index in filled:
        parts, clock = _of_generation(run, generations, index, clock, is_first=not times)
        if times:
            before = generations.aligned[filled[len(times) - 1]]
            waited = min(_stuck_ns(run, before), parts["restart"])
            parts["restart"] -= waited
            parts["stopped"] += waited
        times.append(parts)
    stopped = int(stands_still_s * 1e9)
    ended = max(ended, clock + stopped)
    times[-1]["stopped"] += stopped
    times[-1]["epoch_gap"] += max(0, ended - clock - stopped)
    return [_in_seconds(parts) for parts in times]


def _in_seconds(ns: Mapping[str, int]) -> JobTime:
    parts = {name: ns.get(name, 0) / 1e9 for name in PARTS}
    return JobTime(**parts, total=sum(ns.values()) / 1e9)


def _of_generation(
    run: Run, generations: Generations, index: int, clock: int, is_first: bool
) -> tuple[dict[str, int], int]:
    """Return the nanoseconds of a generation's parts, and when it ended.

    Args:
        clock: wall time at which the generation before it ended, or the job began.
        is_first: whether no generation was before it.
    """
    aligned, ledger = generations.aligned[index], generations.ledgers[index]
    warm, repeated = generations.warm[index], generations.repeated(index)
    ns = dict.fromkeys(PARTS, 0)
    still = stood_still(ledger.total, generations.unsteady[index])
    moving = ledger.total - still
    ns["stopped"] = int(still.sum())
    ns["repeated"] = int(moving[repeated].sum())
    ns["warmup"] = int(moving[warm & ~repeated].sum())
    ns["steps"] = int(moving[~warm & ~repeated].sum())
    for column, kind in enumerate(GAPS):
        ns[kind] += int(ledger.gaps[:, column].sum())
    outside = time_outside(run, aligned, ledger)
    trailing = _trailing(aligned, outside.last_step, outside.ended)
    ns["steps"] += outside.steps
    ns["unrecorded"] += outside.unrecorded
    ns["validation"] += trailing[0] + outside.validation
    ns["checkpoint"] += trailing[1] + outside.checkpoint
    last = outside.ended + sum(trailing) + generations.to_wall[index]
    # The rest lies before the first step or between sessions.
    ns["startup" if is_first else "restart"] = max(0, last - clock - sum(ns.values()))
    return ns, max(clock, last)


def stood_still(total: Ints, unsteady: Bools) -> Ints:
    """Return per step its time above the usual, if it took so long that the job hung."""
    settled = total[~unsteady]
    if not len(settled):
        return np.zeros(len(total), np.int64)
    usual = int(np.median(settled))
    return np.where((total > overdue_ns(usual)) & ~unsteady, total - usual, 0)


def _stuck_ns(run: Run, aligned: AlignedSteps) -> int:
    """Return how long a generation's ranks waited in a step that never ended, nanoseconds."""
    return max(_waited_us(log) for log in run.logs if log.generation == aligned.generation) * 1000


def _waited_us(log: Log) -> int:
    fact = log.facts.get("in_flight")
    if not isinstance(fact, Mapping):
        return 0
    since, seen = fact.get("since_us"), fact.get("seen_us")
    return max(0, seen - since) if isinstance(since, int) and isinstance(seen, int) else 0


def _span(run: Run, generations: Generations) -> tuple[int, int]:
    """Return the wall times of the job's start in its first process, and of the last end in a log.

    The start is by the clock of the first generation's lowest rank, the end by that of the last one's.
    """
    first, last = _reference_log(run, generations, 0), _reference_log(run, generations, -1)
    opened, closed = (
        [log.clock_domain == reference.clock_domain for log in run.logs]
        for reference in (first, last)
    )
    starts = [log.job_start for log, here in zip(run.logs, opened, strict=True) if here]
    began = min(starts) + run.wall_offset(first)
    since, set_by = _last_set(generations, last.clock_domain)
    to_wall = run.wall_offset(last) - set_by
    ends = chain.from_iterable(
        end
        for table in (run.intervals, run.steps)
        for end in by_parts(table, ("log", "step", "end"), _last_end, np.array(closed), since)
    )
    return began, max([began, *(end + to_wall for end in ends)])


def _reference_log(run: Run, generations: Generations, index: int) -> Log:
    """Return a log on the clock of the aligned times; without steps, the lowest rank's last."""
    if generations.aligned:
        return first_log(run, generations.aligned[index])
    return run.logs_by_rank[0]


def _last_set(generations: Generations, clock: str) -> tuple[int | None, int]:
    """Return the step from which a clock was not set again, and the sum of its jumps, nanoseconds."""
    if not generations.aligned:
        return None, 0
    last = generations.aligned[-1]
    jumps = [jump for jump in last.clocks.jumps if jump.clock == clock]
    since = max((int(last.steps[jump.at]) for jump in jumps), default=None)
    return since, sum(round(jump.ms * 1e6) for jump in jumps)


def _last_end(part: pa.Table, logs: npt.NDArray[np.bool_], since: int | None) -> list[int]:
    """Kernel: return when the last row of some logs, from a step on, ended; empty without such rows."""
    span = pc.min_max(part["log"]).as_py()
    if not logs[span["min"] : span["max"] + 1].any():
        return []
    here = logs[arrow.numbers(part["log"])]
    if since is not None:
        here &= arrow.numbers(part["step"]) >= since
    return [int(arrow.numbers(part["end"])[here].max())] if here.any() else []


def _trailing(aligned: AlignedSteps, last_step: int, ended: int) -> tuple[int, int]:
    """Return the time in validation and in checkpoints after the last step, of the rank with most.

    Args:
        aligned: the generation.
        last_step: its last step with a known end.
        ended: when that was reduced.
    """
    intervals = aligned.intervals
    spent = []
    for kind in PAUSES:
        chosen = (intervals.kind == kind) & (intervals.step > last_step)
        per_rank = np.zeros(len(aligned.ranks), np.int64)
        low = np.maximum(intervals.begin[chosen], ended)
        np.add.at(
            per_rank, intervals.rank_index[chosen], np.maximum(intervals.end[chosen] - low, 0)
        )
        spent.append(int(per_rank.max(initial=0)))
    return spent[0], spent[1]


def host_step_times(aligned: AlignedSteps) -> npt.NDArray[np.int64]:
    """Return step times without stages, nanoseconds: from one start to the next on the first rank.

    Steps that are not consecutive, or that start an epoch or a session, are left out.
    """
    begin = aligned.cells.columns("begin", [0])[:, 0]
    usable = (np.diff(aligned.steps) == 1) & ~aligned.session_start[1:]
    usable &= aligned.epochs[1:] == aligned.epochs[:-1]
    usable &= (begin[1:] != NULL) & (begin[:-1] != NULL)
    # The first step of a session traces; without a ledger, warm-up is not known more precisely.
    usable &= ~aligned.session_start[:-1]
    return np.asarray(np.diff(begin)[usable])


# -- Compute goodput ------------------------------------------------------------------------------
#
# The share of ranks × wall time that went into steps that count, and the losses.

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
    moving = ledger.total - stood_still(ledger.total, generations.unsteady[index])
    weight = (moving / np.maximum(ledger.total, 1))[counted]
    sums = {name: float((ledger.entry(name)[counted] * weight).sum()) for name in ENTRIES}
    whole = sum(sums.values())
    return {name: value / whole for name, value in sums.items()} if whole else {"compute": 1.0}

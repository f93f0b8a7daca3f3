"""Compute the true times of all events of a job, on one clock.

Step s of rank r:

    begin   = the rank's reduced of the previous step + other (+ the gap between two epochs)
    data    = begin + input; with prefetching loaders, once the batch is made
    ready   = data + compute
    last    = the latest ready of all ranks
    reduced = last + transfer + the rank's lateness (jitter of its completion, skew of its host)

A rank's own time from one reduced to its next ready does not depend on any other rank. So the whole
job is one cumulative sum over the maxima of these times. Prefetching loaders and shared CPU cores
are simulated event by event first, which gives the times of stages. Arrays are ranks × steps here:
each rank's series is contiguous, and so are the columns of the resulting table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .draws import (
    MS,
    US,
    Ints,
    Purpose,
    blocks,
    generator,
    lognormal,
    nanoseconds,
    whole_microseconds,
)
from .faults import STAGES
from .job import Job
from .loaders import waits_for_batches
from .shared_cores import on_shared_cores

#: The name of faults that delay an early bucket of gradients, in addition to the stages.
BUCKET = "bucket"
#: From reduced to the end of the step.
TAIL = 50 * US
_UPTIME = 1_000 * MS


@dataclass(frozen=True)
class Timeline:
    """True times in nanoseconds, ranks × steps unless noted."""

    #: When the hosts' clocks are compared: just before the first step.
    start: int
    begin: Ints
    data: Ints
    ready: Ints
    reduced: Ints
    end: Ints
    input: Ints
    compute: Ints
    #: From the first rank's reduced of the previous step to the rank's begin, without gaps of epochs.
    other: Ints
    #: Per step: the earliest reduced, and the time from the last ready to it.
    reduced_first: Ints
    allreduce: Ints
    #: Per step.
    epochs: Ints
    #: The time added by faults, for the stages (and ``BUCKET``) that have any.
    extra: Mapping[str, Ints]
    #: The same by cause, for the causes that recorders note.
    causes: Mapping[str, Ints]


def timeline(job: Job) -> Timeline:
    """Compute the true times of a job."""
    epochs = np.arange(job.steps) // job.steps_per_epoch
    in_epoch = np.arange(job.steps) % job.steps_per_epoch
    # The time before the first step of an epoch belongs to the epoch, not to the step.
    first_steps = np.flatnonzero(in_epoch == 0)
    added = [_added(job, index, in_epoch, first_steps) for index in range(len(job.faults))]
    extra = _sums([BUCKET if fault.bucket else fault.stage for fault in job.faults], added)
    between, batch, compute = _stages(job)
    compute[:, :1] += nanoseconds(job.tracing_ms)
    later, late = first_steps[1:], _lateness(job)
    gap = TAIL + _epoch_end(job)[:, None]
    if job.cores_per_host is None:
        for name, stage in zip(STAGES, (batch, compute, between), strict=True):
            if name in extra:
                stage += extra[name]
    else:
        begin = np.zeros_like(late)
        begin[:, 1:] = late[:, :-1]
        begin[:, later] += gap
        healthy = {"input": batch, "compute": compute, "other": between}
        slow = [pair for pair in zip(job.faults, added, strict=True) if not pair[0].bucket]
        took, by_faults = on_shared_cores(job, begin, healthy, slow)
        batch, compute, between = (took[name] for name in STAGES)
        extra |= by_faults
    between[:, later] += gap

    transfer = _transfer(job)
    if BUCKET in extra:
        transfer += extra[BUCKET].max(axis=0)
    start = _UPTIME + nanoseconds(job.clocks.largest_lag_ms)
    if job.prefetch:
        batch = waits_for_batches(job, start, batch, (between, compute), (late, transfer))
    lap = _longest_laps(late, between, batch, compute)
    last = start + np.cumsum(lap) + np.cumsum(transfer) - transfer
    complete = last + transfer

    begin = between.copy()
    begin[:, 1:] += late[:, :-1] + complete[:-1]
    begin[:, :1] += start
    data = begin + batch
    ready = data + compute
    reduced = late + complete
    earliest = late.min(axis=0)
    end = reduced + TAIL
    np.minimum(end[:, :-1], begin[:, 1:], out=end[:, :-1])
    return Timeline(
        start=start,
        begin=begin,
        data=data,
        ready=ready,
        reduced=reduced,
        end=end,
        input=batch,
        compute=compute,
        other=_other_times(between, late, earliest, later),
        reduced_first=complete + earliest,
        allreduce=transfer + earliest,
        epochs=epochs,
        extra=extra,
        causes=_sums([fault.cause for fault in job.faults], added),
    )


def _stages(job: Job) -> tuple[Ints, Ints, Ints]:
    """Draw a healthy job's other (from the rank's reduced), input and compute."""
    common = _common(job)
    spread = generator(job.seed, Purpose.SPREAD).standard_normal(job.ranks, dtype=np.float32)
    speed = lognormal(spread, job.rank_spread)
    for rank, factor in job.samples_factor.items():
        speed[rank] *= factor
    tail = generator(job.seed, Purpose.TAIL)

    def stage(purpose: Purpose, ms: float) -> Ints:
        random = generator(job.seed, purpose)
        times = np.empty((job.ranks, job.steps), np.int64)
        for rows in blocks(job.ranks, job.steps):
            count = rows.stop - rows.start
            factors = job.noise.factors(random, count, job.steps, job.noise.cv)
            if purpose is Purpose.COMPUTE:
                if job.noise.tail_share:
                    factors += job.noise.tail(tail, count, job.steps)
                factors *= speed[rows, None]
            factors *= common
            factors *= np.float32(ms * 1e3)
            times[rows] = whole_microseconds(factors)
        return times

    return (
        stage(Purpose.OTHER, job.other_ms),
        stage(Purpose.INPUT, job.input_ms),
        stage(Purpose.COMPUTE, job.compute_ms),
    )


def _common(job: Job) -> npt.NDArray[np.float32]:
    """Draw the factor that all ranks share, per step."""
    random = generator(job.seed, Purpose.COMMON)
    return np.asarray(job.noise.factors(random, 1, job.steps, job.noise.common_cv)[0])


def _transfer(job: Job) -> Ints:
    """Draw the time from the last ready to the first completion without lateness, per step."""
    random = generator(job.seed, Purpose.TRANSFER)
    factors = job.noise.factors(random, 1, job.steps, job.noise.cv)[0]
    return whole_microseconds(factors * np.float32(job.transfer_ms * 1e3))


def _lateness(job: Job) -> Ints:
    """Draw the delay after the transfer with which each rank receives the reduction."""
    if job.ranks == 1:
        return np.zeros((1, job.steps), np.int64)
    random = generator(job.seed, Purpose.JITTER)
    hosts = len(job.hosts)
    skew_us = job.skew * job.transfer_ms * 1e3 * np.arange(hosts) / max(1, hosts - 1)
    skew = whole_microseconds(skew_us)[job.host_index]
    late = np.empty((job.ranks, job.steps), np.int64)
    for rows in blocks(job.ranks, job.steps):
        size = (rows.stop - rows.start, job.steps)
        jitter = random.standard_exponential(size, dtype=np.float32)
        jitter *= np.float32(job.jitter_ms * 1e3)
        late[rows] = whole_microseconds(jitter)
    late += skew[:, None]
    return late


def _longest_laps(late: Ints, *stages: Ints) -> Ints:
    """Return the longest time of any rank from the previous completion to its ready, per step."""
    longest = np.zeros(late.shape[1], np.int64)
    for rows in blocks(*late.shape):
        lap = np.zeros(late[rows].shape, np.int64)
        lap[:, 1:] = late[rows, :-1]
        for stage in stages:
            lap += stage[rows]
        np.maximum(longest, lap.max(axis=0), out=longest)
    return longest


def _sums(names: Sequence[str], added: Sequence[Ints]) -> dict[str, Ints]:
    """Sum what faults add by their names; those without a name are left out."""
    sums: dict[str, Ints] = {}
    for name, times in zip(names, added, strict=True):
        if name:
            sums[name] = sums[name] + times if name in sums else times
    return sums


def _added(job: Job, index: int, in_epoch: Ints, first_steps: Ints) -> Ints:
    """Draw what one of the job's faults adds, ranks × steps."""
    fault = job.faults[index]
    affected = job.affected(fault)
    added = np.zeros((job.ranks, job.steps), np.int64)
    random = generator(job.seed, Purpose.FAULT, index)
    added[affected] = fault.delays(random, len(affected), in_epoch)
    if fault.stage == "other":
        added[:, first_steps] = 0
    return added


def epoch_end_parts(job: Job) -> dict[str, Ints]:
    """Return the nanoseconds of each rank's work at the end of an epoch, by kind and in order."""
    parts = {}
    for kind, ms, ranks in (
        ("validation", job.validation_ms, job.validation_ranks),
        ("checkpoint", job.checkpoint_ms, job.checkpoint_ranks),
    ):
        takes_part = np.ones(job.ranks, bool)
        if ranks is not None:
            takes_part = np.isin(np.arange(job.ranks), list(ranks))
        parts[kind] = takes_part * nanoseconds(ms)
    return parts


def _epoch_end(job: Job) -> Ints:
    gap = np.full(job.ranks, nanoseconds(job.epoch_gap_ms))
    return np.asarray(gap + sum(epoch_end_parts(job).values()))


def _other_times(between: Ints, late: Ints, earliest: Ints, later: Ints) -> Ints:
    """Convert ``between`` to the ledger's definition of other, in place."""
    between[:, 1:] += late[:, :-1] - earliest[:-1]
    between[:, later] = TAIL + late[:, later - 1] - earliest[later - 1]
    # The first step starts with the first rank.
    between[:, :1] -= between[:, :1].min(axis=0)
    return between

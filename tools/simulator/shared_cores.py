"""Simulate shared CPU cores of a host: busy ranks slow the others, waiting ranks do not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from .draws import US, Ints
from .faults import Fault
from .job import Job

# The order of stages in a step.
_ORDER = ("other", "input", "compute")


def on_shared_cores(
    job: Job, begin: Ints, healthy: Mapping[str, Ints], added: Sequence[tuple[Fault, Ints]]
) -> tuple[dict[str, Ints], dict[str, Ints]]:
    """Return the times of stages on shared cores, and the faults' part of them, ranks × steps.

    Allreduce ends every step for all ranks, so steps do not depend on each other, and all steps are
    simulated at once.

    Args:
        job: a job with ``cores_per_host``.
        begin: when each rank starts each step, nanoseconds after the previous step was complete.
        healthy: the time that each stage needs without faults on a free core.
        added: the time that each fault adds.
    """
    assert job.cores_per_host is not None
    segments = []
    for stage in _ORDER:
        segments.append((stage, healthy[stage], 1))
        segments += [(stage, extra, fault.burns) for fault, extra in added if fault.stage == stage]
    needs = np.stack([need for _, need, _ in segments])
    threads = [count for _, _, count in segments]
    took = np.empty_like(needs)
    for host in range(job.host_count):
        ranks = job.host_index == host
        took[:, ranks] = share_out(job.cores_per_host, begin[ranks], needs[:, ranks], threads)

    stages: dict[str, Ints] = {}
    of_faults: dict[str, Ints] = {}
    for (stage, _, _), time in zip(segments, took, strict=True):
        if stage in stages:
            of_faults[stage] = of_faults.get(stage, 0) + time
        stages[stage] = stages.get(stage, 0) + time
    return stages, of_faults


def share_out(cores: int, begin: Ints, needs: Ints, threads: Sequence[int]) -> Ints:
    """Return the time of each segment of every rank of one host, in whole microseconds.

    Processor sharing: if there are more busy threads than cores, all of them proceed at the rate
    cores / threads, otherwise at 1. Sleep always proceeds at 1. Between two events of a step all rates
    are constant.

    Args:
        cores: the CPU cores of the host.
        begin: when each rank starts its first segment, ranks × steps.
        needs: the time that segments need on free cores, in order: segments × ranks × steps.
        threads: the number of threads that each segment keeps busy.
    """
    # First a rank waits for its start; at the end it waits for the others.
    work_of = np.concatenate([begin[None], needs, np.zeros_like(begin[None])]).astype(float)
    busy_in = np.array([0, *threads, 0])
    done = len(work_of) - 1
    at = np.zeros(begin.shape, np.int64)
    left = work_of[0].copy()
    now = np.zeros(begin.shape[1])
    ends = np.empty((done, *begin.shape))
    while (at < done).any():
        busy = busy_in[at]
        rate = np.where(busy, cores / np.maximum(busy.sum(axis=0), cores), 1.0)
        until = np.where(at < done, left / rate, np.inf)
        passed = until.min(axis=0)
        passed[np.isinf(passed)] = 0.0
        now += passed
        left = np.maximum(left - passed * rate, 0.0)
        rank, step = np.nonzero(until <= passed)
        ended = at[rank, step]
        ends[ended, rank, step] = now[step]
        at[rank, step] += 1
        left[rank, step] = work_of[ended + 1, rank, step]
    return np.diff(np.rint(ends / US).astype(np.int64) * US, axis=0)

"""CPU cores that the ranks of a host share: who computes slows the others, who waits does not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from .draws import US, Ints
from .faults import Fault
from .job import Job

# The order in which a step has its stages.
_ORDER = ("other", "input", "compute")


def on_shared_cores(
    job: Job, begin: Ints, healthy: Mapping[str, Ints], added: Sequence[tuple[Fault, Ints]]
) -> tuple[dict[str, Ints], dict[str, Ints]]:
    """Return how long stages really take, and what of that their faults do: by stage, ranks × steps.

    Allreduce ends every step for all ranks, so a step does not depend on the one before it, and all
    steps are followed at once.

    Args:
        job: a job with ``cores_per_host``.
        begin: when each rank begins each step, nanoseconds after the step before was complete.
        healthy: by stage, what it needs without faults and on a core of its own.
        added: what each fault adds to that.
    """
    assert job.cores_per_host is not None
    segments = []
    for stage in _ORDER:
        segments.append((stage, healthy[stage], 1))
        segments += [(stage, extra, one.burns) for one, extra in added if one.stage == stage]
    needs = np.stack([need for _, need, _ in segments])
    threads = [count for _, _, count in segments]
    took = np.empty_like(needs)
    for host in range(job.host_count):
        own = job.host_index == host
        took[:, own] = share_out(job.cores_per_host, begin[own], needs[:, own], threads)

    stages: dict[str, Ints] = {}
    of_faults: dict[str, Ints] = {}
    for (stage, _, _), time in zip(segments, took, strict=True):
        if stage in stages:
            of_faults[stage] = of_faults.get(stage, 0) + time
        stages[stage] = stages.get(stage, 0) + time
    return stages, of_faults


def share_out(cores: int, begin: Ints, needs: Ints, threads: Sequence[int]) -> Ints:
    """Return how long every rank of one host takes for each of its segments, in whole microseconds.

    Processor sharing: while there are more busy threads than cores, all of them proceed at the rate
    cores / threads, and otherwise at 1, as sleep does. Between two events of a step all rates are
    constant.

    Args:
        cores: of the host.
        begin: when each rank begins with its first segment, ranks × steps.
        needs: what its segments need on free cores, in order: segments × ranks × steps.
        threads: per segment, how many threads it keeps busy.
    """
    # First a rank waits for its begin; at the end it waits for the others.
    left_of = np.concatenate([begin[None], needs, np.zeros_like(begin[None])]).astype(float)
    busy_in = np.array([0, *threads, 0])
    done = len(left_of) - 1
    at = np.zeros(begin.shape, np.int64)
    left = left_of[0].copy()
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
        left[rank, step] = left_of[ended + 1, rank, step]
    return np.diff(np.rint(ends / US).astype(np.int64) * US, axis=0)

"""Simulate prefetching loaders, like tf.data's prefetch and PyTorch's workers."""

from __future__ import annotations

import numpy as np

from .draws import Ints, Purpose, generator, whole_microseconds
from .job import Job


def waits_for_batches(
    job: Job, start: int, making: Ints, own_stages: tuple[Ints, Ints], reduction: tuple[Ints, Ints]
) -> Ints:
    """Compute how long every rank waits for its batch in every step: ranks × steps, nanoseconds.

    A loader makes one batch after the other, and pauses while ``job.prefetch`` of them are ready. It
    starts up to one batch before the first step, at a random time on each rank.

    Args:
        job: a job with prefetching loaders.
        start: when the first step starts.
        making: the time to make each batch.
        own_stages: each rank's other (from its own reduced) and compute.
        reduction: the delay with which each rank receives a reduction, and the transfer per step.
    """
    between, compute = own_stages
    late, transfer = reduction
    ahead = generator(job.seed, Purpose.LOADER).random(job.ranks) * making[:, 0] / 1e3
    ready = start - whole_microseconds(ahead)
    taken = np.zeros_like(making)
    waits = np.empty_like(making)
    reduced = np.full(job.ranks, start)
    for step in range(job.steps):
        if step >= job.prefetch:
            ready = np.maximum(ready, taken[:, step - job.prefetch])
        ready = ready + making[:, step]
        begin = reduced + between[:, step]
        taken[:, step] = np.maximum(begin, ready)
        waits[:, step] = taken[:, step] - begin
        last = (taken[:, step] + compute[:, step]).max()
        reduced = last + transfer[step] + late[:, step]
    return waits

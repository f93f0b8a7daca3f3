"""Loaders that run ahead of their ranks, as tf.data's prefetch and PyTorch's workers do."""

from __future__ import annotations

import numpy as np

from .draws import Ints, Purpose, generator, whole_microseconds
from .job import Job


def waits_for_batches(
    job: Job, start: int, making: Ints, own: tuple[Ints, Ints], together: tuple[Ints, Ints]
) -> Ints:
    """How long every rank waits for its batch in every step: ranks × steps, nanoseconds.

    A loader makes one batch after the other, and rests while ``job.prefetch`` of them lie ready. It
    began up to one batch before the first step, each rank's at another moment.

    Args:
        start: when the first step begins.
        making: what making each batch takes.
        own: each rank's other (from its own reduced) and compute.
        together: how late a rank learns of a completion, and per step the transfer.
    """
    between, compute = own
    late, transfer = together
    ahead = generator(job.seed, Purpose.LOADER).random(job.ranks) * making[:, 0] / 1e3
    made = start - whole_microseconds(ahead)
    taken = np.zeros_like(making)
    waits = np.empty_like(making)
    reduced = np.full(job.ranks, start)
    for step in range(job.steps):
        if step >= job.prefetch:
            made = np.maximum(made, taken[:, step - job.prefetch])
        made = made + making[:, step]
        begin = reduced + between[:, step]
        taken[:, step] = np.maximum(begin, made)
        waits[:, step] = taken[:, step] - begin
        last = (taken[:, step] + compute[:, step]).max()
        reduced = last + transfer[step] + late[:, step]
    return waits

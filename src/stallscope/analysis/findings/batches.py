"""Check that ranks have equal shares of the work."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..advice.imbalance import even_work
from ..advice.piece import in_words
from .finding import Finding
from .records import Records

# Smaller differences come from the last batches of epochs, and their cost is not measurable.
_UNEVEN = 0.01


def uneven_batches(records: Records) -> Iterator[Finding]:
    """Find ranks with batches of different sizes."""
    per_step = _samples_per_step(records) or _batch_sizes(records)
    for fewest, most, more in _fewest_and_most(per_step):
        yield Finding(
            "uneven_batches",
            "warning",
            "Ranks have batches of different sizes",
            f"Rank {most} processes {per_step[most]:,.1f} samples per step and rank {fewest} "
            f"{per_step[fewest]:,.1f}: rank {most} has {more:.1%} more to compute in every step, and "
            "the others wait for it unless its device is faster by as much.",
            f"{in_words(even_work(records.setup))} Averaging gives every rank's gradients the same "
            "weight, so samples of smaller batches count more.",
        )


def uneven_shards(records: Records) -> Iterator[Finding]:
    """Find ranks with shards of different sizes."""
    epochs, per_step = records.epochs, _samples_per_step(records)
    lengths = {rank: epochs.steps[epochs.rank == rank] for rank in per_step}
    if not all(map(len, lengths.values())):
        return
    per_epoch = {rank: per_step[rank] * float(np.mean(steps)) for rank, steps in lengths.items()}
    for fewest, most, more in _fewest_and_most(per_epoch):
        yield Finding(
            "uneven_shards",
            "warning",
            "Ranks have shards of different sizes",
            f"Rank {most} processes {per_epoch[most]:,.0f} samples in an epoch and rank {fewest} "
            f"{per_epoch[fewest]:,.0f}: rank {most} has {more:.1%} more to compute.",
            f"{in_words(even_work(records.setup))} Shard by sample rather than by file, or give every "
            "rank the same number of files of equal size.",
        )


def _samples_per_step(records: Records) -> dict[int, float]:
    """Return each rank's average samples per step; empty unless known for all ranks."""
    ranks = [log.rank for log in records.logs.values()]
    logs = list(records.logs)
    counted = np.bincount(ranks, records.totals.counted[logs])[records.ranks]
    samples = np.bincount(ranks, records.totals.samples[logs])[records.ranks]
    if not counted.all():
        return {}
    return dict(zip(records.ranks, (samples / counted).tolist(), strict=True))


def _batch_sizes(records: Records) -> dict[int, float]:
    """Return the batch size in each rank's last log; empty unless all ranks recorded it."""
    sizes = {rank: log.facts.get("batch_size") for rank, log in records.last_log.items()}
    known = {rank: float(size) for rank, size in sizes.items() if size}
    return known if len(known) == len(sizes) else {}


def _fewest_and_most(numbers: dict[int, float]) -> Iterator[tuple[int, int, float]]:
    """Find the ranks with the fewest and the most, and the difference, unless they are about equal."""
    if len(numbers) > 1:
        fewest, most = min(numbers, key=numbers.__getitem__), max(numbers, key=numbers.__getitem__)
        if 0 < numbers[fewest] * (1 + _UNEVEN) < numbers[most]:
            yield fewest, most, numbers[most] / numbers[fewest] - 1

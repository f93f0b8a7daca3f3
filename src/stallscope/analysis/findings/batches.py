"""Check that ranks have equal shares of the work."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

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
            f"Rank {most} processes {per_step[most].known:,.1f} samples per step and rank {fewest} "
            f"{per_step[fewest].known:,.1f}: rank {most} has {more:.1%} more to compute in every step, "
            "and the others wait for it unless its device is faster by as much.",
            f"{in_words(even_work(records.setup))} Averaging gives every rank's gradients the same "
            "weight, so samples of smaller batches count more.",
        )


def uneven_shards(records: Records) -> Iterator[Finding]:
    """Find ranks with shards of different sizes."""
    per_step, steps = _samples_per_step(records), _steps_per_epoch(records)
    per_epoch = {
        rank: _Samples(*(value * steps[rank] for value in samples))
        for rank, samples in per_step.items()
        if rank in steps
    }
    for fewest, most, more in _fewest_and_most(per_epoch):
        yield Finding(
            "uneven_shards",
            "warning",
            "Ranks have shards of different sizes",
            f"Rank {most} processes {per_epoch[most].known:,.0f} samples in an epoch and rank {fewest} "
            f"{per_epoch[fewest].known:,.0f}: rank {most} has {more:.1%} more to compute.",
            f"{in_words(even_work(records.setup))} Shard by sample rather than by file, or give every "
            "rank the same number of files of equal size.",
        )


class _Samples(NamedTuple):
    """A rank's samples: the mean of its known steps, and the bounds of that over all of its steps."""

    known: float
    least: float
    most: float


def _samples_per_step(records: Records) -> dict[int, _Samples]:
    """Return each rank's average samples per step; empty unless known for all ranks.

    Steps that a rank lost, and others have, may have had as few or as many samples as any step.
    """
    ranks, logs = [log.rank for log in records.logs.values()], list(records.logs)
    totals = records.totals
    counted, samples = (
        np.bincount(ranks, values[logs])[records.ranks]
        for values in (totals.counted, totals.samples)
    )
    if not counted.all():
        return {}
    fewest, most = totals.fewest_samples[logs].min(), totals.most_samples[logs].max()
    lost = counted.max() - counted
    bounds = ((samples + lost * size) / counted.max() for size in (fewest, most))
    columns = (values.tolist() for values in (samples / counted, *bounds))
    return dict(zip(records.ranks, map(_Samples, *columns), strict=True))


def _steps_per_epoch(records: Records) -> dict[int, float]:
    """Return each rank's average steps per epoch; ranks without a whole epoch are left out.

    Ranks may know different epochs, so each epoch is compared with the longest of the same number.
    """
    epochs = records.epochs
    if not len(epochs.steps):
        return {}
    fits = np.stack([epochs.part, epochs.epoch], axis=1)
    _, place = np.unique(fits, axis=0, return_inverse=True)
    longest = np.zeros(place.max() + 1, np.int64)
    np.maximum.at(longest, place, epochs.steps)
    shorter = longest[place] - epochs.steps
    return {
        rank: float(longest.mean() - shorter[epochs.rank == rank].mean())
        for rank in np.unique(epochs.rank).tolist()
    }


def _batch_sizes(records: Records) -> dict[int, _Samples]:
    """Return the batch size in each rank's last log; empty unless all ranks recorded it."""
    sizes = {rank: log.facts.get("batch_size") for rank, log in records.last_log.items()}
    known = {rank: _Samples(*[float(size)] * 3) for rank, size in sizes.items() if size}
    return known if len(known) == len(sizes) else {}


def _fewest_and_most(samples: dict[int, _Samples]) -> Iterator[tuple[int, int, float]]:
    """Find the ranks with the fewest and the most, and the difference, unless they may be equal."""
    if len(samples) > 1:
        fewest = min(samples, key=lambda rank: samples[rank].most)
        most = max(samples, key=lambda rank: samples[rank].least)
        if 0 < samples[fewest].most * (1 + _UNEVEN) < samples[most].least:
            yield fewest, most, samples[most].known / samples[fewest].known - 1

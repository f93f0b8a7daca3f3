"""What a batch tells about itself, whatever structure it has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Iterable, Optional, Sequence, Tuple

import torch
from torch import Tensor
from torch.utils.data import BatchSampler, DataLoader, IterableDataset

# Old versions have it elsewhere.
_put_together = getattr(torch.utils.data, "default_collate", None)


def samples_in(batch: Any) -> Optional[int]:
    """Samples in a batch: the first dimension of the first tensor that has one; None without any."""
    return samples_of(shape_in(batch))


def samples_of(shape: Optional[Sequence[int]]) -> Optional[int]:
    """How many a batch has whose ``shape_in`` this is."""
    return int(shape[0]) if shape else None


def shape_in(batch: Any) -> Optional[Sequence[int]]:
    """The shape of the first tensor in a batch that has dimensions; what is empty or None without any.

    This is all of it that training needs to wait for.
    """
    if batch is None:
        return None
    if isinstance(batch, Tensor):
        shape: Sequence[int] = batch.shape
        return shape
    if isinstance(batch, torch.nn.utils.rnn.PackedSequence):
        return [int(batch.batch_sizes[0])]
    members: Iterable[Any] = ()
    if isinstance(batch, Mapping):
        members = batch.values()
    elif isinstance(batch, (list, tuple)):
        members = batch
    return next(filter(None, map(shape_in, members)), None)


def full_batches(loader: Any) -> Tuple[int, Optional[Sequence[int]]]:
    """How many batches, from the first, are full for certain, and what the shape of these begins with.

    A tensor makes its shape again for every caller, which is half of what a turn costs. Batches that are
    torch's own loader's, put together in its own way, need not be asked. 0 where it is not known.
    """
    if (
        type(loader) is not DataLoader
        or type(loader.batch_sampler) is not BatchSampler
        or isinstance(loader.dataset, IterableDataset)
        or loader.collate_fn is not _put_together
        # Workers that wait for no others may have the last one early.
        or not getattr(loader, "in_order", True)
    ):
        return 0, None
    batches: Any = loader.batch_sampler
    # A sampler of the user's own may give fewer than it says, or not say how many.
    if not type(batches.sampler).__module__.startswith("torch."):
        return 0, None
    try:
        return len(batches.sampler) // batches.batch_size, (batches.batch_size,)
    except Exception:
        # Most ask the data set, which is the user's own.
        return 0, None

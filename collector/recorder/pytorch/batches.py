"""Read the number of samples from a batch of any structure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Iterable, Optional, Sequence, Tuple

import torch
from torch import Tensor
from torch.utils.data import BatchSampler, DataLoader, IterableDataset

# Old versions have it in another module.
_default_collate = getattr(torch.utils.data, "default_collate", None)


def samples_in(batch: Any) -> Optional[int]:
    """Return the samples in a batch: the first dimension of the first tensor that has one, or None."""
    return samples_of(shape_in(batch))


def samples_of(shape: Optional[Sequence[int]]) -> Optional[int]:
    """Return the samples of a batch with this ``shape_in``."""
    return int(shape[0]) if shape else None


def shape_in(batch: Any) -> Optional[Sequence[int]]:
    """Return the shape of the first tensor in a batch that has dimensions; empty or None without any.

    The number of samples can be computed from it later; only the shape is read during training.
    """
    if batch is None:
        return None
    # The usual kinds of batch. Training has just filled the caches, so calls are slow.
    kind, first = type(batch), batch
    if (kind is list or kind is tuple) and batch:
        first = batch[0]
    elif kind is dict and batch:
        first = next(iter(batch.values()))
    shape: Sequence[int] = first.shape if type(first) is Tensor else ()
    if shape:
        return shape
    if isinstance(batch, Tensor):
        return tuple(batch.shape)
    if isinstance(batch, torch.nn.utils.rnn.PackedSequence):
        return [int(batch.batch_sizes[0])]
    members: Iterable[Any] = ()
    if isinstance(batch, Mapping):
        members = batch.values()
    elif isinstance(batch, (list, tuple)):
        members = batch
    return next(filter(None, map(shape_in, members)), None)


def full_batches(loader: Any) -> Tuple[int, Optional[Sequence[int]]]:
    """Return the number of batches at the start that are certainly full, and the start of their shape.

    A tensor makes its shape anew for every caller, which is half the cost of an iteration. The shape is
    known for torch's own loader with its own collate function; elsewhere the result is 0.
    """
    if (
        type(loader) is not DataLoader
        or type(loader.batch_sampler) is not BatchSampler
        or isinstance(loader.dataset, IterableDataset)
        or loader.collate_fn is not _default_collate
        # Workers may deliver the last batch early.
        or not getattr(loader, "in_order", True)
    ):
        return 0, None
    batches: Any = loader.batch_sampler
    # A custom sampler may give fewer samples than its length says, or have no length.
    if not type(batches.sampler).__module__.startswith("torch."):
        return 0, None
    try:
        return len(batches.sampler) // batches.batch_size, (batches.batch_size,)
    except Exception:
        # Most samplers call the data set, which is user code.
        return 0, None

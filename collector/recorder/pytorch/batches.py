"""What a batch tells about itself, whatever structure it has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Iterable, Optional, Sequence

import torch
from torch import Tensor


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

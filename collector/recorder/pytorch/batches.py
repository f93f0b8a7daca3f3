"""What a batch tells about itself, whatever structure it has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Iterable, Optional

import torch
from torch import Tensor


def samples_in(batch: Any) -> Optional[int]:
    """Samples in a batch: the first dimension of the first tensor that has one; None without any."""
    if isinstance(batch, Tensor):
        shape = batch.shape
        return int(shape[0]) if shape else None
    if isinstance(batch, torch.nn.utils.rnn.PackedSequence):
        return int(batch.batch_sizes[0])
    for member in _members(batch):
        found = samples_in(member)
        if found is not None:
            return found
    return None


def _members(batch: Any) -> Iterable[Any]:
    members: Iterable[Any] = ()
    # What nearly all batches are comes first: to ask for the other kinds takes a microsecond.
    if type(batch) in (tuple, list):
        members = batch
    elif isinstance(batch, Mapping):
        members = batch.values()
    elif isinstance(batch, (list, tuple)):
        members = batch
    return members

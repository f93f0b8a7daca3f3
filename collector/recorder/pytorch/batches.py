"""What a batch tells about itself, whatever structure it has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Optional

import torch


def samples_in(batch: Any) -> Optional[int]:
    """Samples in a batch: the first dimension of the first tensor that has one; None without any."""
    if isinstance(batch, torch.Tensor):
        return int(batch.shape[0]) if batch.dim() else None
    if isinstance(batch, torch.nn.utils.rnn.PackedSequence):
        return int(batch.batch_sizes[0])
    if isinstance(batch, Mapping):
        batch = batch.values()
    elif not isinstance(batch, (list, tuple)):
        return None
    return next((found for found in map(samples_in, batch) if found is not None), None)

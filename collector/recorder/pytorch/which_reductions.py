"""Find out which library reduces the gradients of a training."""

from __future__ import annotations

from typing import Any

import torch

from .reductions import (
    DdpReductions,
    HorovodReductions,
    Reductions,
    Updates,
    innermost_model,
)
from .sharded import DeepSpeedReductions, FsdpReductions, is_deepspeed, is_fully_sharded


def reductions_of(optimizer: Any, model: Any, size: int) -> Reductions:
    """Return the reductions of this training."""
    model = innermost_model(model)
    if isinstance(model, torch.nn.parallel.DistributedDataParallel):
        return DdpReductions(model)
    reason = None
    if size > 1 and is_fully_sharded(model):
        return FsdpReductions(model)
    if size > 1 and is_deepspeed(model):
        return DeepSpeedReductions(model)
    if hasattr(optimizer, "_starting_models"):
        reason = "Adasum reduces in the middle of the optimizer's step"
    elif hasattr(optimizer, "skip_synchronize"):
        return HorovodReductions(optimizer)
    elif size > 1:
        reason = (
            "the optimizer is not Horovod's and the model not DistributedDataParallel"
            " or sharded by fully_shard"
        )
    # Before torch 2.0 updates cannot be seen either.
    updates = hasattr(optimizer, "register_step_post_hook")
    return Updates(optimizer, reason) if updates else Reductions(reason)

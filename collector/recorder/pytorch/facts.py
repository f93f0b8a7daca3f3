"""Facts of a model, its optimizer and loader, and of torch's settings."""

from __future__ import annotations

import os
import sys
from typing import Any, Callable, Dict, List, Optional, TypeVar

import torch

from ..identity import World, world_from_environment
from ..learning_rate import scaled_by_ranks
from .reductions import Reductions, without_compiler

_Fact = TypeVar("_Fact")


def world_of_training() -> World:
    """The rank as Horovod or torch.distributed tells it, otherwise as the launcher does."""
    horovod = sys.modules.get("horovod.torch")
    if horovod is not None and horovod.is_initialized():
        return World(horovod.rank(), horovod.size(), horovod.local_rank())
    launched = world_from_environment(os.environ)
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return World(distributed.get_rank(), distributed.get_world_size(), launched.local_rank)
    return launched


def parameters_of(optimizer: Any, model: Any) -> List[torch.Tensor]:
    """The parameters whose gradients are reduced; they need not all be training."""
    ddp = isinstance(without_compiler(model), torch.nn.parallel.DistributedDataParallel)
    if optimizer is None or ddp:
        return [] if model is None else list(model.parameters())
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def why_no_stamps(
    reductions: Reductions, parameters: List[torch.Tensor], stages: bool
) -> Optional[str]:
    """Why only the host's own times are recorded; None where gradients can be timed."""
    if not stages:
        return "switched off with stages=False"
    if not parameters:
        return "neither an optimizer nor a model was given"
    for kind in device_types(parameters):
        if kind != "cpu":
            return "on %s gradients are ready later than the host can see" % kind.upper()
    return reductions.reason


def model_facts(
    optimizer: Any, model: Any, parameters: List[torch.Tensor], size: int
) -> Dict[str, Any]:
    """Facts of the model and its optimizer; None for what is not there or kept in another way."""
    inner = without_compiler(model)
    inner = getattr(inner, "module", inner)
    training = [parameter for parameter in parameters if parameter.requires_grad]
    rate = _known(lambda: float(optimizer.param_groups[0]["lr"]))
    return {
        "framework": "pytorch",
        "versions": {"torch": str(torch.__version__), "horovod": _version("horovod")},
        "model": None if inner is None else type(inner).__name__,
        "parameters": _known(lambda: sum(parameter.numel() for parameter in parameters)),
        "optimizer": None if optimizer is None else type(optimizer).__name__,
        "learning_rate": rate,
        "learning_rate_scaled": _known(lambda: scaled_by_ranks(optimizer, "lr", rate, size)),
        "backward_passes_per_step": getattr(optimizer, "backward_passes_per_step", None),
        "gradient_tensors": len(training),
        "gradient_bytes": _known(lambda: sum(map(_bytes, training))),
        "threads": {
            "inter_op": torch.get_num_interop_threads(),
            "intra_op": torch.get_num_threads(),
        },
        "devices": [kind.upper() for kind in device_types(parameters)],
    }


def device_types(parameters: List[torch.Tensor]) -> List[str]:
    return sorted({parameter.device.type for parameter in parameters})


def steps_counted(optimizer: Any) -> int:
    """Steps that the optimizer has counted in its life; 0 where it counts none, as SGD does."""
    states = getattr(optimizer, "state", {}).values()
    counts = [state["step"] for state in states if isinstance(state, dict) and "step" in state]
    # One on a device would have to be waited for.
    there = [count for count in counts if getattr(count, "is_cpu", True)]
    return max(map(int, there), default=0)


def _bytes(parameter: torch.Tensor) -> int:
    return int(parameter.numel() * parameter.element_size())


def _known(read: Callable[[], _Fact]) -> Optional[_Fact]:
    """A fact, or None where it cannot be had: no fact is worth the recording."""
    try:
        return read()
    except Exception:
        return None


def _version(module: str) -> Optional[str]:
    return getattr(sys.modules.get(module), "__version__", None)

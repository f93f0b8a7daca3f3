"""Connect ranks of torchrun, which may share a GPU, and try whether NCCL connects them.

torchrun --nproc-per-node 2 -m gpu.one_gpu_rank gpu.ranks
"""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

import torch
from torch import distributed

#: Names the library that reduces on CUDA devices; gpu_check.py sets it.
BACKEND = "GPU_CHECK_BACKEND"
_PATIENCE = timedelta(seconds=60)


def device_of(kind: str) -> torch.device:
    """Return this rank's device, and make it the current one."""
    if kind == "cpu":
        return torch.device("cpu")
    local_rank = os.environ.get("LOCAL_RANK", os.environ.get("HOROVOD_LOCAL_RANK", "0"))
    # Two ranks share the device if there is only one.
    device = torch.device("cuda", int(local_rank) % torch.cuda.device_count())
    torch.cuda.set_device(device)
    return device


def connect(device: torch.device, **options: Any) -> None:
    """Connect the ranks of torchrun; gpu_check.py has tried which library can."""
    on_device = os.environ.get(BACKEND, "nccl")
    distributed.init_process_group(on_device if device.type == "cuda" else "gloo", **options)


def try_nccl() -> None:
    """Add up the ranks on their GPUs.

    Raises:
        RuntimeError: if NCCL does not connect them.
    """
    device = device_of("cuda")
    distributed.init_process_group("nccl", timeout=_PATIENCE)
    numbers = torch.full((1 << 20,), float(distributed.get_rank()), device=device)
    distributed.all_reduce(numbers)
    ranks = distributed.get_world_size()
    if numbers.min().item() != ranks * (ranks - 1) / 2:
        raise RuntimeError(f"NCCL adds up {ranks} ranks to {numbers.min().item()}")
    distributed.destroy_process_group()


if __name__ == "__main__":
    try_nccl()

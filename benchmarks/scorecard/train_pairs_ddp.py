"""Train pairs with PyTorch's DistributedDataParallel on gloo; pairs.py starts it.

torchrun --nproc-per-node 2 benchmarks/scorecard/train_pairs_ddp.py PLAN OUT
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist
from pairs_launch import Rank
from pairs_torch import one_thread, train
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def distribute(
    model: nn.Module, optimizer: torch.optim.Optimizer
) -> tuple[nn.Module, torch.optim.Optimizer]:
    """Let DistributedDataParallel reduce the gradients."""
    return DistributedDataParallel(model), optimizer


def agree(number: float) -> float:
    """Return rank 0's number on every rank."""
    numbers = [number]
    dist.broadcast_object_list(numbers, 0)
    return numbers[0]


def main() -> None:
    plan, out = Path(sys.argv[1]), Path(sys.argv[2])
    dist.init_process_group("gloo")
    one_thread()
    rank = dist.get_rank()
    trained = partial(train, rank=rank, distribute=distribute)
    Rank(out, rank, dist.get_world_size(), trained, agree).run(plan)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

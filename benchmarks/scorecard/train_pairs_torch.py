"""Train pairs with PyTorch and Horovod; pairs.py starts it.

horovodrun -np 2 python benchmarks/scorecard/train_pairs_torch.py PLAN OUT
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import horovod.torch as hvd
import torch
from pairs_launch import Rank
from pairs_torch import one_thread, train
from torch import nn


def distribute(
    model: nn.Module, optimizer: torch.optim.Optimizer
) -> tuple[nn.Module, torch.optim.Optimizer]:
    """Let Horovod reduce the gradients."""
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    return model, hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())


def main() -> None:
    plan, out = Path(sys.argv[1]), Path(sys.argv[2])
    hvd.init()
    one_thread()
    rank = hvd.rank()
    trained = partial(train, rank=rank, distribute=distribute)
    Rank(out, rank, hvd.size(), trained, lambda number: hvd.broadcast_object(number, 0)).run(plan)


if __name__ == "__main__":
    main()

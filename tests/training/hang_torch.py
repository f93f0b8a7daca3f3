"""Train on two ranks with PyTorch; rank 1 stops for ever in step 30, in the given place.

horovodrun -np 2 python hang_torch.py loader|backward|other|collective LOG_DIR
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator

import horovod.torch as hvd
import torch
from hanging import FATAL_STEP, stops_here
from torch import Tensor

from stallscope.torch import StepLogger


def hang_if(place: str, step: int) -> None:
    if stops_here(hvd.rank(), place, step):
        threading.Event().wait()


def batches() -> Iterator[tuple[Tensor, Tensor]]:
    for step in range(2 * FATAL_STEP):
        hang_if("loader", step)
        yield torch.randn(16, 32), torch.randn(16, 8)


class HangsInBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, values: Tensor) -> Tensor:
        return values.view_as(values)

    @staticmethod
    def backward(ctx: object, gradient: Tensor) -> Tensor:
        hang_if("backward", step)
        return gradient


hvd.init()
torch.set_num_threads(1)
first, second = torch.nn.Linear(32, 64), torch.nn.Linear(64, 8)
model = torch.nn.Sequential(first, second)
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
optimizer = hvd.DistributedOptimizer(
    torch.optim.SGD(model.parameters(), lr=0.01), named_parameters=model.named_parameters()
)
with StepLogger(sys.argv[2], optimizer=optimizer) as log:
    for step, (x, y) in enumerate(log.watch(batches())):
        optimizer.zero_grad()
        hidden = HangsInBackward.apply(first(x))
        ((second(hidden) - y) ** 2).mean().backward()
        optimizer.step()
        hang_if("other", step)
        if stops_here(hvd.rank(), "collective", step):
            hvd.allreduce(torch.zeros(1), name="alone")

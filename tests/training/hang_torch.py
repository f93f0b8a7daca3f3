"""Train on two ranks with PyTorch, once per place of hanging.py; rank 1 hangs there in step 30.

horovodrun -np 2 python hang_torch.py OUT
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import horovod.torch as hvd
import torch
from asleep import polling, wait_asleep
from hanging import FATAL_STEP, PLACES, Halt
from torch import Tensor

from stallscope.torch import StepLogger


def hang_if(halt: Halt, place: str, step: int) -> None:
    if halt.is_here(place, step):
        os.close(os.open(halt.pipe, os.O_RDONLY))


def batches(halt: Halt) -> Iterator[tuple[Tensor, Tensor]]:
    for step in range(2 * FATAL_STEP):
        hang_if(halt, "loader", step)
        yield torch.randn(16, 32), torch.randn(16, 8)


class HangsInBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, halt: Halt, step: int) -> Tensor:
        ctx.halt, ctx.step = halt, step
        return values.view_as(values)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        hang_if(ctx.halt, "backward", ctx.step)
        return gradient, None, None


def train(halt: Halt) -> None:
    first, second = torch.nn.Linear(32, 64), torch.nn.Linear(64, 8)
    model = torch.nn.Sequential(first, second)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.01), named_parameters=model.named_parameters()
    )
    with StepLogger(halt.logs, optimizer=optimizer) as log:
        for step, (x, y) in enumerate(log.watch(batches(halt))):
            optimizer.zero_grad()
            hidden = HangsInBackward.apply(first(x), halt, step)
            ((second(hidden) - y) ** 2).mean().backward()
            optimizer.step()
            hang_if(halt, "other", step)
            if halt.is_here("collective", step):
                hvd.allreduce(torch.zeros(1), name="alone")


hvd.init()
wait_asleep()
torch.set_num_threads(1)
for place in PLACES:
    # In one hang rank 0 waits as Horovod does.
    with polling() if place == "backward" else contextlib.nullcontext():
        train(Halt(hvd.rank(), place, Path(sys.argv[1])))

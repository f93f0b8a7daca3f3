"""Train for real_projections.py; ranks share only the network for their gradients.

horovodrun -np N python benchmarks/real_projections_training.py LOGS STEPS

Backward sleeps, so that ranks do not compete for cores while they compute.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import horovod.torch as hvd
import torch

from stallscope.torch import StepLogger

# Gradients of 12 MB, as one large and three small tensors.
_HIDDEN = 40_000
_BACKWARD_SECONDS = 0.08
_BATCH = 8


class Sleeps(torch.autograd.Function):
    @staticmethod
    def forward(_: Any, outputs: torch.Tensor) -> torch.Tensor:
        return outputs.clone()

    @staticmethod
    def backward(_: Any, gradient: torch.Tensor) -> torch.Tensor:
        time.sleep(_BACKWARD_SECONDS)
        return gradient


def main() -> None:
    logs, steps = sys.argv[1], int(sys.argv[2])
    hvd.init()
    torch.set_num_threads(1)
    layers = torch.nn.Linear(64, _HIDDEN), torch.nn.ReLU(), torch.nn.Linear(_HIDDEN, 10)
    model = torch.nn.Sequential(*layers)
    named = model.named_parameters()
    plain = torch.optim.SGD(model.parameters(), lr=1e-3)
    optimizer = hvd.DistributedOptimizer(plain, named_parameters=named)
    batch = torch.randn(_BATCH, 64), torch.randint(0, 10, (_BATCH,))
    with StepLogger(logs, optimizer=optimizer, batch_size=_BATCH) as log:
        for inputs, labels in log.watch([batch] * steps):
            optimizer.zero_grad()
            outputs = Sleeps.apply(model(inputs))
            torch.nn.functional.cross_entropy(outputs, labels).backward()
            optimizer.step()


if __name__ == "__main__":
    main()

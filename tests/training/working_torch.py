"""Train with PyTorch with known CPU time and gradients: for test_cluster.py.

horovodrun … python working_torch.py LOG_DIR STEPS COMPUTE_MS GRADIENT_MB
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

import horovod.torch as hvd
import torch
from asleep import wait_asleep

from stallscope.torch import StepLogger

INPUTS = 256


def batches(steps: int) -> Iterator[torch.Tensor]:
    for _ in range(steps):
        time.sleep(0.002)
        yield torch.rand(16, INPUTS)


def work(milliseconds: float) -> None:
    """Use so much CPU time."""
    end = time.thread_time() + milliseconds / 1000
    while time.thread_time() < end:
        pass


def main() -> None:
    folder, steps, compute_ms = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    outputs = round(float(sys.argv[4]) * 1e6 / 4 / INPUTS)
    hvd.init()
    wait_asleep()
    torch.set_num_threads(1)
    model = torch.nn.Linear(INPUTS, outputs, bias=False)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), 0.01), model.named_parameters()
    )
    with StepLogger(folder, optimizer=optimizer, run_name="working") as log:
        for inputs in log.watch(batches(steps)):
            work(compute_ms)
            optimizer.zero_grad()
            model(inputs).square().mean().backward()
            optimizer.step()


if __name__ == "__main__":
    main()

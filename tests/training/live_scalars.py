"""Train a small PyTorch model on two ranks with series for TensorBoard; rank 1 is slow.

torchrun --nproc-per-node 2 live_scalars.py LOGS BOARD
"""

from __future__ import annotations

import sys
import time

import torch
from process_group import end_process_group

from stallscope.collector.recorder import subprocesses
from stallscope.torch import StepLogger

STEPS = 95
SLOW_SECONDS = 0.12


def main() -> None:
    # A busy machine may need longer than the default.
    subprocesses.PATIENCE_SECONDS = 900.0
    logs, board = sys.argv[1:]
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 4))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    with StepLogger(logs, optimizer=optimizer, model=model, scalars=f"tensorboard:{board}") as log:
        for _ in log.watch(range(STEPS)):
            if torch.distributed.get_rank() == 1:
                time.sleep(SLOW_SECONDS)
            optimizer.zero_grad()
            model(torch.rand(16, 8)).square().mean().backward()
            optimizer.step()
    # The other rank's log must be complete before rank 0 ends.
    torch.distributed.barrier()
    end_process_group()


if __name__ == "__main__":
    main()

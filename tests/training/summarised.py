"""Train a small PyTorch model with a slow loader on rank 1, and summarise the run at the end.

horovodrun -np 2 python summarised.py LOGS
torchrun --nproc-per-node 2 summarised.py LOGS
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from asleep import wait_asleep
from process_group import end_process_group

from stallscope.collector.recorder import end_summary
from stallscope.torch import StepLogger

STEPS = 60
#: Several times the rest of a step: on a busy machine ranks take CPU time from each other.
SLOW_SECONDS = 0.25


def batches(rank: int) -> Iterator[Any]:
    for _ in range(STEPS):
        if rank == 1:
            time.sleep(SLOW_SECONDS)
        yield torch.rand(16, 8), torch.randint(4, (16,))


def train(rank: int, model: Any, optimizer: Any, ddp: Any = None) -> None:
    with StepLogger(sys.argv[1], optimizer=optimizer, model=ddp, summary=True) as log:
        for inputs, labels in log.watch(batches(rank)):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(inputs), labels).backward()
            optimizer.step()
        if rank == 1:
            # Ranks end at different times.
            while not is_closed(Path(sys.argv[1]) / "rank-00000.0.0.steps.csv"):
                time.sleep(0.01)


def is_closed(log: Path) -> bool:
    return log.read_bytes().splitlines()[-1].startswith(b"end,")


def main() -> None:
    # A busy machine may need longer than the defaults.
    end_summary.LIMITS = end_summary.LIMITS._replace(seconds=900.0)
    end_summary.WAIT_SECONDS = 120.0
    torch.set_num_threads(1)
    model = torch.nn.Linear(8, 4)
    if "HOROVOD_RANK" in os.environ:
        import horovod.torch as hvd

        hvd.init()
        wait_asleep()
        optimizer = torch.optim.SGD(model.parameters(), 0.01)
        train(hvd.rank(), model, hvd.DistributedOptimizer(optimizer, model.named_parameters()))
    else:
        torch.distributed.init_process_group("gloo")
        ddp = torch.nn.parallel.DistributedDataParallel(model)
        optimizer = torch.optim.SGD(ddp.parameters(), 0.01)
        train(torch.distributed.get_rank(), ddp, optimizer, ddp)
        end_process_group()


if __name__ == "__main__":
    main()

"""Trains on ranks that come and go: one of two ends itself in the middle, and the other goes on alone.

    horovodrun --gloo -np 2 --min-np 1 --max-np 2 --network-interfaces lo \
        --host-discovery-script FILE python elastic_cases.py OUT

``OUT/logs`` holds the logs, ``OUT/ended-PID.txt`` the steps that a process has worked through, each with
its rank, the number of ranks, and the monotonic nanosecond in which it ended.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import horovod.torch as hvd
import torch

from stallscope.torch import StepLogger

STEPS = 60
#: The step, counted by what was committed, at which rank 0 ends itself, if it is not alone.
FATAL_STEP = 25
FLUSH_SECONDS = 0.1


def batches(rank: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    random = torch.Generator().manual_seed(rank)
    return [
        (torch.rand(16, 8, generator=random), torch.randint(4, (16,), generator=random))
        for _ in range(STEPS)
    ]


def wait_for_flush(log: Path, step: int) -> None:
    while f"\nstep,{step}," not in log.read_text():
        time.sleep(FLUSH_SECONDS)


def train(state: hvd.elastic.TorchState, out: Path) -> None:
    written = (out / f"ended-{os.getpid()}.txt").open("a")
    log = StepLogger(
        out / "logs", optimizer=state.optimizer, run_name="elastic", flush_seconds=FLUSH_SECONDS
    )
    with log:
        for inputs, labels in log.watch(batches(hvd.rank())[state.step :]):
            state.optimizer.zero_grad()
            torch.nn.functional.cross_entropy(state.model(inputs), labels).backward()
            state.optimizer.step()
            # Steps that last as long as real ones: logs are flushed between them.
            time.sleep(0.02)
            if (hvd.rank(), hvd.size(), state.step) == (0, 2, FATAL_STEP):
                wait_for_flush(out / "logs" / "rank-00000.0.0.steps.csv", state.step - 1)
                os.kill(os.getpid(), signal.SIGKILL)
            written.write(f"{hvd.rank()} {hvd.size()} {state.step} {time.monotonic_ns()}\n")
            written.flush()
            state.step += 1
            state.commit()


def main() -> None:
    out = Path(sys.argv[1])
    hvd.init()
    torch.set_num_threads(1)
    torch.manual_seed(3)
    model = torch.nn.Linear(8, 4)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), 0.01), model.named_parameters()
    )
    state = hvd.elastic.TorchState(model=model, optimizer=optimizer, step=0)
    hvd.elastic.run(train)(state, out)


if __name__ == "__main__":
    main()

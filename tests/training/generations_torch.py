"""Train elastically with PyTorch: for test_generations.py.

    horovodrun … --host-discovery-script FILE python generations_torch.py OUT inside|outside

``inside``: each generation has its own logger and passes its first step. ``outside``: one logger stays
open, and the optimizer counts steps. It ends before the step whose number is in OUT/last-step.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import horovod.torch as hvd
import torch
from asleep import wait_asleep
from ending import is_over

from stallscope.torch import StepLogger

STEPS_PER_COMMIT = 10


def batches(
    state: hvd.elastic.TorchState, out: Path
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    random = torch.Generator().manual_seed(hvd.rank())
    while not is_over(out, state.step):
        yield torch.rand(16, 8, generator=random), torch.randint(4, (16,), generator=random)


def train(
    state: hvd.elastic.TorchState, log: StepLogger, out: Path, first_step: int | None
) -> None:
    for inputs, labels in log.watch(batches(state, out), first_step=first_step):
        state.optimizer.zero_grad()
        torch.nn.functional.cross_entropy(state.model(inputs), labels).backward()
        state.optimizer.step()
        # As long as real steps, so that logs are flushed between them.
        time.sleep(0.04)
        state.step += 1
        if state.step % STEPS_PER_COMMIT == 0:
            state.commit()


def main() -> None:
    out, place = Path(sys.argv[1]), sys.argv[2]
    hvd.init()
    wait_asleep()
    torch.set_num_threads(1)
    torch.manual_seed(3)
    model = torch.nn.Linear(8, 4)
    kind = torch.optim.SGD if place == "inside" else torch.optim.Adam
    optimizer = hvd.DistributedOptimizer(kind(model.parameters(), 0.01), model.named_parameters())
    state = hvd.elastic.TorchState(model=model, optimizer=optimizer, step=0)

    def logger() -> StepLogger:
        return StepLogger(
            out / "logs", optimizer=optimizer, run_name="generations", flush_seconds=0.1
        )

    if place == "outside":
        with logger() as log:
            hvd.elastic.run(train)(state, log, out, None)
        return

    def generation(state: hvd.elastic.TorchState) -> None:
        with logger() as log:
            train(state, log, out, state.step)

    hvd.elastic.run(generation)(state)


if __name__ == "__main__":
    main()

"""Train with DDP from the last checkpoint on: for test_generations.py.

    torchrun … resumed.py OUT STEPS FATAL_STEP

Rank 1 of the first attempt exits at FATAL_STEP, and torchrun restarts both ranks; -1 means never.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.distributed as dist
from process_group import end_process_group
from rows_on_disk import wait_for_step

from stallscope.torch import StepLogger

STEPS_PER_CHECKPOINT = 20


def begin() -> None:
    """Connect to the other ranks, after a restart with a new store of addresses."""
    env, attempt = os.environ, os.environ["TORCHELASTIC_RESTART_COUNT"]
    store = dist.TCPStore(env["MASTER_ADDR"], int(env["MASTER_PORT"]), is_master=False)
    dist.init_process_group(
        "gloo",
        store=dist.PrefixStore(f"attempt {attempt}", store),
        rank=int(env["RANK"]),
        world_size=int(env["WORLD_SIZE"]),
    )


def main() -> None:
    out, steps, fatal_step = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    begin()
    torch.set_num_threads(1)
    torch.manual_seed(3)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 4))
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    saved, step = out / "checkpoint.pt", 0
    if saved.exists():
        state = torch.load(saved)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        step = state["step"]

    def batches() -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        while step < steps:
            yield torch.rand(16, 8), torch.randint(4, (16,))

    with StepLogger(
        out / "logs", optimizer=optimizer, model=model, run_name="resumed", flush_seconds=0.1
    ) as log:
        for inputs, labels in log.watch(batches()):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(inputs), labels).backward()
            optimizer.step()
            time.sleep(0.02)
            step += 1
            if step % STEPS_PER_CHECKPOINT == 0:
                if dist.get_rank() == 0:
                    with log.checkpoint():
                        torch.save(
                            {
                                "model": model.state_dict(),
                                "optimizer": optimizer.state_dict(),
                                "step": step,
                            },
                            saved,
                        )
                dist.barrier()
            first_attempt = os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
            if first_attempt and (dist.get_rank(), step) == (1, fatal_step):
                # Rank 0 has ended this step, and waits in the next one.
                wait_for_step(out / "logs", 0, step - 1)
                wait_for_step(out / "logs", 1, step - 2)
                os._exit(3)
    end_process_group()


if __name__ == "__main__":
    main()

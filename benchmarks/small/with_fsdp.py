"""Small trainings with FSDP2 on two ranks, recorded and with a bare tool (see turns.py)."""

import os
import sys
from pathlib import Path
from typing import Any, Iterable

import torch
from torch.distributed.fsdp import fully_shard
from torch_net import loader, network
from turns import Arms, Bare, Ruler, run

from stallscope.torch import StepLogger


def arms(layers: int, steps: int, ruler: Ruler) -> Arms:
    model, batches = network(layers), loader(steps)
    fully_shard(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def train(batches: Iterable[Any]) -> None:
        for batch in batches:
            optimizer.zero_grad()
            model(batch).square().mean().backward()
            optimizer.step()

    def recorded(out: Path) -> None:
        with StepLogger(out, optimizer=optimizer, model=model) as log:
            train(ruler.loop(log.watch(batches)))

    def bare(tool: Bare) -> None:
        train(ruler.loop(tool.watch(batches)))

    return recorded, bare


if __name__ == "__main__":
    if "RANK" in os.environ:
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
        torch.distributed.init_process_group("gloo")
        run(
            arms,
            lambda ruler: ruler.time_loader(torch.utils.data.DataLoader),
            writes=torch.distributed.get_rank() == 0,
        )
        torch.distributed.destroy_process_group()
    else:
        from torch.distributed.run import main as torchrun

        torchrun(["--nproc-per-node=2", "--standalone", __file__, *sys.argv[1:]])

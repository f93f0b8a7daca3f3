"""A small training with FSDP2 on two ranks, recorded: OUT LAYERS STEPS."""

import os
import sys

import torch
from torch.distributed.fsdp import fully_shard

from stallscope.torch import StepLogger

WIDTH, BATCH = 64, 32


def train(out: str, layers: int, steps: int) -> None:
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.distributed.init_process_group("gloo")
    torch.set_num_threads(1)
    parts: list[torch.nn.Module] = []
    for _ in range(layers):
        parts += [torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU()]
    model = torch.nn.Sequential(*parts, torch.nn.Linear(WIDTH, 10))
    fully_shard(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    loader = torch.utils.data.DataLoader(torch.randn(BATCH * steps, WIDTH), BATCH)
    with StepLogger(out, optimizer=optimizer, model=model) as log:
        for batch in log.watch(loader):
            optimizer.zero_grad()
            model(batch).square().mean().backward()
            optimizer.step()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    if "RANK" in os.environ:
        train(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
    else:
        from torch.distributed.run import main as torchrun

        torchrun(["--nproc-per-node=2", "--standalone", __file__, *sys.argv[1:]])

"""Small trainings with Accelerate, recorded and with a bare tool (see turns.py)."""

from pathlib import Path
from typing import Any, Iterable

import torch
from accelerate import Accelerator
from accelerate.data_loader import DataLoaderShard
from torch_net import loader, network
from turns import Arms, Bare, Ruler, run

from stallscope.torch import StepLogger


def arms(layers: int, steps: int, ruler: Ruler) -> Arms:
    net = network(layers)
    accelerator = Accelerator(cpu=True)
    model, optimizer, batches = accelerator.prepare(
        net, torch.optim.SGD(net.parameters(), lr=1e-3), loader(steps)
    )

    def train(batches: Iterable[Any]) -> None:
        for batch in batches:
            optimizer.zero_grad()
            accelerator.backward(model(batch).square().mean())
            optimizer.step()

    def recorded(out: Path) -> None:
        with StepLogger(out, optimizer=optimizer, model=model) as log:
            train(ruler.loop(log.watch(batches)))

    def bare(tool: Bare) -> None:
        train(ruler.loop(tool.watch(batches)))

    return recorded, bare


run(arms, lambda ruler: ruler.time_loader(DataLoaderShard))
